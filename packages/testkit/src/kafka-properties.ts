/** The broker's properties file, filled in from the templates in `packages/testkit/kafka`. */
import { readFileSync, writeFileSync } from 'node:fs';
import { resolve } from 'node:path';

const templates = resolve(import.meta.dirname, '../kafka');

export interface BrokerSecurity {
  readonly username: string;
  readonly password: string;
  /** PEM files: private key and certificate together, and the authority that signed it. */
  readonly server_pem: string;
  readonly ca_pem: string;
  readonly sasl_port: number;
  readonly ssl_port: number;
  readonly saslssl_port: number;
}

export interface BrokerSettings {
  readonly node_id: number;
  readonly port: number;
  readonly controller_port: number;
  readonly voters: string;
  readonly data_dir: string;
  readonly nodes: number;
  readonly security: BrokerSecurity | null;
}

export function brokerProperties(settings: BrokerSettings): string {
  const { security } = settings;
  const client_listeners = [
    `PLAINTEXT://127.0.0.1:${settings.port}`,
    ...(security === null
      ? []
      : [
          `SASL://127.0.0.1:${security.sasl_port}`,
          `SSL://127.0.0.1:${security.ssl_port}`,
          `SASLSSL://127.0.0.1:${security.saslssl_port}`,
        ]),
  ];
  const values: Record<string, string> = {
    node_id: String(settings.node_id),
    voters: settings.voters,
    listeners: [...client_listeners, `CONTROLLER://127.0.0.1:${settings.controller_port}`].join(),
    advertised_listeners: client_listeners.join(),
    data_dir: settings.data_dir,
    replicas: String(settings.nodes),
    min_insync: settings.nodes > 1 ? '2' : '1',
    // Short, so that a killed broker may return at once; longer where several share the machine.
    broker_session_timeout_ms: settings.nodes > 1 ? '3000' : '1000',
    username: security?.username ?? '',
    password: security?.password ?? '',
    server_pem: security?.server_pem ?? '',
    ca_pem: security?.ca_pem ?? '',
  };
  const files = ['server.properties', ...(security === null ? [] : ['security.properties'])];
  const text = files.map((file) => readFileSync(resolve(templates, file), 'utf8')).join('\n');
  return text.replaceAll(/\$\{(\w+)\}/g, (_, name: string) => values[name] ?? '');
}

export function writeProperties(file: string, text: string): void {
  writeFileSync(file, text, { mode: 0o600 });
}
