import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { canonicalAddress } from './address.ts';
import { decodeCursor, encodeCursor } from './cursor.ts';

const address = (url: string) => canonicalAddress('webhook', { url });

const label = fc.stringMatching(/^[a-z][a-z0-9]{0,8}$/);
const host = fc.tuple(label, label).map((labels) => labels.join('.'));
const path = fc.stringMatching(/^(\/[A-Za-z0-9_~-]{1,8}){0,3}\/?$/);
const query = fc.option(fc.stringMatching(/^[A-Za-z0-9=&_-]{1,12}$/), { nil: null });
const scheme = fc.constantFrom('http', 'https');
const port = fc.option(fc.integer({ min: 1, max: 65_535 }), { nil: null });
const parts = fc.record({ scheme, host, port, path, query });
type Parts = typeof parts extends fc.Arbitrary<infer T> ? T : never;

const own = { http: 80, https: 443 } as const;
const text = ({ scheme, host, port, path, query }: Parts) =>
  `${scheme}://${host}${port === null ? '' : `:${port}`}${path}${query === null ? '' : `?${query}`}`;

describe('canonical address', () => {
  it.each([
    ['HTTPS://Shop.Example/Hook', 'https://shop.example/Hook'],
    ['https://shop.example:443', 'https://shop.example/'],
    ['http://shop.example:443/', 'http://shop.example:443/'],
    ['https://shop.example/a?b=C#d', 'https://shop.example/a?b=C'],
    ['https://shop.example/a/../b', 'https://shop.example/b'],
    ['https://shop.example./a', 'https://shop.example/a'],
    ['https://shop.example.:8443/a', 'https://shop.example:8443/a'],
    ['https://shop.example/a/', 'https://shop.example/a/'],
    ['https://b\u00fccher.example/', 'https://xn--bcher-kva.example/'],
    ['https://[2001:DB8::1]:8443/', 'https://[2001:db8::1]:8443/'],
    ['https://0x7f.1/', 'https://127.0.0.1/'],
  ])('%s is %s', (given, expected) => expect(address(given)).toBe(expected));

  it('is its own canonical form', () =>
    fc.assert(
      fc.property(parts, (of) => {
        const once = address(text(of));
        expect(address(once)).toBe(once);
      }),
    ));

  it('does not depend on spelling', () =>
    fc.assert(
      fc.property(parts, fc.boolean(), fc.constantFrom('', '#', '#part'), (of, upper, fragment) => {
        const spelled = {
          ...of,
          host: upper ? of.host.toUpperCase() : of.host,
          port: of.port ?? own[of.scheme],
          path: of.path === '' ? '/' : of.path,
        };
        expect(address(text(spelled) + fragment)).toBe(address(text(of)));
      }),
    ));

  it('tells apart whatever goes to another place', () =>
    fc.assert(
      fc.property(parts, parts, (a, b) => {
        const place = (of: Parts) => [
          of.scheme,
          of.host,
          of.port ?? own[of.scheme],
          of.path || '/',
          of.query,
        ];
        expect(address(text(a)) === address(text(b))).toBe(
          JSON.stringify(place(a)) === JSON.stringify(place(b)),
        );
      }),
    ));
});

describe('cursor', () => {
  it('comes back as the id it was made from', () =>
    fc.assert(
      fc.property(fc.uuid(), (id) => {
        expect(decodeCursor(encodeCursor(id))).toBe(id);
      }),
    ));

  it('is refused when it is not ours', () => {
    for (const wrong of [
      '',
      'x',
      'AAAA',
      `${encodeCursor('018f0000-0000-7000-8000-000000000000')}=`,
      '\u0000',
    ]) {
      expect(decodeCursor(wrong)).toBeNull();
    }
    fc.assert(
      fc.property(fc.string(), (any) => (decodeCursor(any) === null ? true : any.length === 22)),
    );
  });
});
