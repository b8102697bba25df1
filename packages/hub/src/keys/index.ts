export type { KeyErrorCode } from './errors.ts';
export { KekMismatch, KeyError } from './errors.ts';
export type { Keyring, SealContext, Sealed } from './keyring.ts';
export { createKeyring } from './keyring.ts';
export type { KeyProvider } from './provider.ts';
export { localKeyProvider } from './provider.ts';
export type { KeySource } from './sources.ts';
export { openKeyProvider } from './sources.ts';
