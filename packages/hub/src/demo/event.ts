/** An event as the demo knows it, whoever told of it first: producer, inbox or receiver. */
export class DemoEvent {
  /** Short enough to follow with the eye. */
  readonly number: number;
  readonly event_type: string;
  #sequence: number | null = null;
  #waiting: (() => void)[] = [];

  constructor(number: number, event_type: string) {
    this.number = number;
    this.event_type = event_type;
  }

  /** Its place in the order of arrival; null until the hub has shown it. */
  get sequence(): number | null {
    return this.#sequence;
  }

  markStored(sequence: number): void {
    this.#sequence = sequence;
    for (const tell of this.#waiting.splice(0)) tell();
  }

  /**
   * Runs now, or once the event is known to be stored. The hub delivers within milliseconds, sooner
   * than the demo can look into the inbox; told in the order of looking, effects came before causes.
   */
  whenStored(tell: () => void): void {
    if (this.#sequence === null) this.#waiting.push(tell);
    else tell();
  }
}
