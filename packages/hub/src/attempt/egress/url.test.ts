import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { hostileHosts, impossibleHosts } from './hostile-addresses.ts';
import { checkUrl } from './url.ts';

const strict = { allow_private: false, allow_http: false };
const local = { allow_private: true, allow_http: true };

function messageOf(url: string, policy = strict): string | null {
  const verdict = checkUrl(url, policy);
  return verdict.ok ? null : verdict.message;
}

describe('checkUrl', () => {
  it('cuts an accepted URL into origin, path and host', () => {
    expect(checkUrl('https://Hooks.Example.com:8443/a/b?c=d', strict)).toEqual({
      ok: true,
      target: {
        origin: 'https://hooks.example.com:8443',
        path: '/a/b?c=d',
        hostname: 'hooks.example.com',
      },
    });
    expect(checkUrl('https://[2606:4700::1111]/', strict)).toMatchObject({
      target: { origin: 'https://[2606:4700::1111]', hostname: '2606:4700::1111' },
    });
  });

  it.each(hostileHosts)('refuses the host %s', (host) => {
    expect(messageOf(`https://${host}/hook`)).not.toBeNull();
    expect(messageOf(`https://${host}:8443/hook`)).not.toBeNull();
  });

  it.each(impossibleHosts)('refuses the impossible host "%s"', (host) => {
    for (const policy of [strict, local]) {
      expect(messageOf(`https://${host}/hook`, policy)).not.toBeNull();
    }
  });

  it.each([
    ['http://example.com/', /plain http is not allowed/],
    ['ftp://example.com/', /must start with https/],
    ['file:///etc/passwd', /must start with https/],
    ['gopher://example.com/', /must start with https/],
    ['javascript:alert(1)', /must start with https/],
    ['data:text/plain,x', /must start with https/],
    ['https://user@example.com/', /user name or password/],
    ['https://user:secret@example.com/', /user name or password/],
    ['https://:secret@example.com/', /user name or password/],
    ['https://example.com/#part', /fragment/],
    ['https://example.com/#', /fragment/],
    ['https://example.com:0/', /Port 0/],
    ['https://example.com:22/', /Port 22/],
    ['https://example.com:25/', /Port 25/],
    ['https://example.com:65536/', /cannot be parsed/],
    ['https://exam\tple.com/', /control character/],
    ['https://example.com/a b', /space/],
    ['https:\\\\example.com\\', /backslash/],
    ['example.com/hook', /cannot be parsed/],
    ['', /cannot be parsed/],
    [`https://example.com/${'a'.repeat(2048)}`, /longer than/],
  ])('refuses %s with a reason', (url, reason) => {
    expect(messageOf(url)).toMatch(reason);
  });

  it.each([
    'http://127.0.0.1:9000/hook',
    'http://localhost:9000/hook',
    'http://receiver:9000/',
    'https://10.0.0.1/',
    'http://[::1]:9000/',
    'https://service.internal/',
  ])('lets an operator allow %s', (url) => {
    expect(messageOf(url, local)).toBeNull();
    expect(messageOf(url)).not.toBeNull();
  });

  it.each([
    'http://169.254.169.254/latest/meta-data',
    'http://0xa9fea9fe/',
    'http://[::ffff:169.254.169.254]/',
    'http://[fd00:ec2::254]/',
    'http://[64:ff9b::a9fe:a9fe]/',
    'http://100.100.100.200/',
    'http://metadata.google.internal/',
    'http://metadata.google.internal./',
    'http://0.0.0.0:9000/',
    'http://[::]:9000/',
    'http://224.0.0.1/',
  ])('refuses %s even where private targets are allowed', (url) => {
    expect(messageOf(url, local)).not.toBeNull();
  });

  it('never throws, and what it accepts is what will be called', () => {
    fc.assert(
      fc.property(
        fc.oneof(fc.string(), fc.webUrl(), fc.webUrl({ withFragments: true })),
        (text) => {
          const verdict = checkUrl(text, strict);
          if (!verdict.ok) return;
          const url = new URL(text);
          expect(verdict.target.origin + verdict.target.path).toBe(url.href);
        },
      ),
    );
  });
});
