import { SettingsError } from './error.ts';
import { settingsTable } from './table/index.ts';

export interface ListenAddress {
  /** Empty host = every interface. */
  readonly host: string;
  readonly port: number;
}

/** Splits `host:port`, `[v6]:port` and `:port`. @throws SettingsError for a port above 65535. */
export function parseListenAddress(address: string): ListenAddress {
  const colon = address.lastIndexOf(':');
  const host = address.slice(0, colon).replace(/^\[|\]$/g, '');
  const port = Number(address.slice(colon + 1));
  if (!(port <= 65_535)) {
    const name = settingsTable.httpListenAddr.name;
    throw new SettingsError(
      name,
      `${name} must end in a port from 0 to 65535, and ${port} is not.`,
    );
  }
  return { host, port };
}

/** True only for addresses that no other machine can reach. */
export function isLoopback(host: string): boolean {
  return host === 'localhost' || host === '::1' || /^127(\.\d{1,3}){3}$/.test(host);
}
