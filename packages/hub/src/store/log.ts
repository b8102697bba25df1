/** The part of a pino logger that the store writes to. */
export interface StoreLog {
  info(fields: object, message: string): void;
  warn(fields: object, message: string): void;
  error(fields: object, message: string): void;
}

export const silentLog: StoreLog = { info() {}, warn() {}, error() {} };
