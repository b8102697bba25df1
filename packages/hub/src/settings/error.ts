/** The environment asks for something the hub will not start with. The message is one sentence that says what to do. */
export class SettingsError extends Error {
  /** The variable the sentence is about. */
  readonly setting: string;

  constructor(setting: string, message: string, options?: ErrorOptions) {
    super(message, options);
    this.name = 'SettingsError';
    this.setting = setting;
  }
}
