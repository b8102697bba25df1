import { execFile } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';

const run = promisify(execFile);

export interface ReceiverCertificate {
  readonly key: string;
  /** Self-signed, so it is also the authority to trust. */
  readonly cert: string;
}

/**
 * Makes a self-signed certificate with openssl.
 * @param names subject alternative names such as `DNS:localhost` or `IP:127.0.0.1`
 * @param days until it expires; negative = it has expired already
 */
export async function makeReceiverCertificate(
  names: readonly string[] = ['DNS:localhost', 'IP:127.0.0.1'],
  days = 2,
): Promise<ReceiverCertificate> {
  const folder = await mkdtemp(join(tmpdir(), 'receiver-certificate-'));
  try {
    const at = (name: string) => join(folder, name);
    const curve = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes'];
    const files = ['-keyout', at('key.pem'), '-out', at('request.pem')];
    // OpenSSL looks an issuer up by its name, so two certificates must not share one.
    const subject = `/CN=receiver ${randomUUID()}`;
    const extension = ['-addext', `subjectAltName=${names.join(',')}`];
    await run('openssl', ['req', '-new', ...curve, ...files, '-subj', subject, ...extension]);
    const signing = ['-signkey', at('key.pem'), '-copy_extensions', 'copyall'];
    const output = ['-days', String(days), '-out', at('cert.pem')];
    await run('openssl', ['x509', '-req', '-in', at('request.pem'), ...signing, ...output]);
    return {
      key: await readFile(at('key.pem'), 'utf8'),
      cert: await readFile(at('cert.pem'), 'utf8'),
    };
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}
