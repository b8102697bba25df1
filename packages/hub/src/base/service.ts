/** Everything that runs in the background has this shape. `stop` is idempotent, safe before `start`, and waits. */
export interface Service {
  start(): Promise<void>;
  stop(): Promise<void>;
}
