/** A throw-away certificate authority and a server certificate for 127.0.0.1, made by openssl. */
import { execFile } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';

const run = promisify(execFile);

export interface Certificates {
  readonly server_pem: string;
  readonly ca_pem: string;
  /** The authority's certificate as text, for clients. */
  readonly ca: string;
}

export async function makeCertificates(folder: string): Promise<Certificates> {
  const at = (name: string) => join(folder, name);
  const key = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes'];
  const authority = ['-keyout', at('ca.key'), '-out', at('ca.pem'), '-subj', '/CN=Test Authority'];
  await run('openssl', ['req', '-x509', ...key, ...authority, '-days', '30']);
  const server_names = ['-keyout', at('server.key'), '-out', at('server.csr')];
  await run('openssl', ['req', ...key, ...server_names, '-subj', '/CN=127.0.0.1']);
  writeFileSync(at('names'), 'subjectAltName=IP:127.0.0.1,DNS:localhost\n');
  const signer = ['-CA', at('ca.pem'), '-CAkey', at('ca.key'), '-CAcreateserial'];
  const request = ['-in', at('server.csr'), '-extfile', at('names'), '-days', '30'];
  await run('openssl', ['x509', '-req', ...request, ...signer, '-out', at('server.crt')]);
  const server_pem =
    readFileSync(at('server.key'), 'utf8') + readFileSync(at('server.crt'), 'utf8');
  writeFileSync(at('server.pem'), server_pem, { mode: 0o600 });
  return {
    server_pem: at('server.pem'),
    ca_pem: at('ca.pem'),
    ca: readFileSync(at('ca.pem'), 'utf8'),
  };
}
