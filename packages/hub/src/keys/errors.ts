/**
 * What can go wrong with keys and sealed secrets:
 * - `kek_invalid`: no key-encryption key was given, or it is not 32 bytes of base64
 * - `kek_mismatch`: a data key was wrapped with a key-encryption key that this process does not have
 * - `seal_broken`: sealed bytes do not open: altered, cut, or moved to another tenant, subscription or purpose
 */
export type KeyErrorCode = 'kek_invalid' | 'kek_mismatch' | 'seal_broken';

/** Its message names keys by id only; it never holds key material or plaintext. */
export class KeyError extends Error {
  readonly code: KeyErrorCode;

  constructor(code: KeyErrorCode, message: string, options?: ErrorOptions) {
    super(message, options);
    this.name = 'KeyError';
    this.code = code;
  }
}

/** The secrets were sealed under another key-encryption key than the ones configured. */
export class KekMismatch extends KeyError {
  readonly kek_id: string;

  constructor(kek_id: string, configured: readonly string[]) {
    super(
      'kek_mismatch',
      `The stored secrets are sealed with key ${kek_id}, but the configured key is ${configured.join(', ')}; start the hub with the key they were sealed with.`,
    );
    this.name = 'KekMismatch';
    this.kek_id = kek_id;
  }
}
