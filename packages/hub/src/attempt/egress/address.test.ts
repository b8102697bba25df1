import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { classifyAddress } from './address.ts';
import { hostileAnswers, publicAddresses } from './hostile-addresses.ts';

describe('classifyAddress', () => {
  it.each(hostileAnswers)('refuses %s', (address) => {
    expect(classifyAddress(address)).not.toBe('public');
  });

  it.each(publicAddresses)('lets %s pass', (address) => {
    expect(classifyAddress(address)).toBe('public');
  });

  it.each([
    '169.254.169.254',
    '::ffff:169.254.169.254',
    '::ffff:0:a9fe:a9fe',
    '64:ff9b::a9fe:a9fe',
    '64:ff9b:1::a9fe:a9fe',
    '64:ff9b:1:a9fe:a9:fe00::',
    '2002:a9fe:a9fe::1',
    '2001:0:808:808:0:0:5601:5601',
    '2600:1f00::5efe:a9fe:a9fe',
    'fe80::200:5efe:a9fe:a9fe',
    'fd00:ec2::254',
    'FD00:0EC2::0254',
    '100.100.100.200',
    '::ffff:6464:64c8',
    '168.63.129.16',
  ])(
    'knows %s as metadata, so that it is refused even where private targets are allowed',
    (text) => {
      expect(classifyAddress(text)).toBe('metadata');
    },
  );

  it.each([
    '127.0.0.1',
    '::1',
    '10.0.0.1',
    '192.168.1.1',
    'fd12::1',
    '100.64.0.1',
    '::ffff:10.0.0.1',
  ])('calls %s private', (address) => {
    expect(classifyAddress(address)).toBe('private');
  });

  it('judges an embedded IPv4 address as that address, whatever it is', () => {
    const octet = fc.integer({ min: 0, max: 255 });
    fc.assert(
      fc.property(fc.tuple(octet, octet, octet, octet), ([a, b, c, d]) => {
        const hex = (high: number, low: number) => ((high << 8) | low).toString(16);
        const [front, back] = [hex(a, b), hex(c, d)];
        const [x, y] = [hex(a ^ 255, b ^ 255), hex(c ^ 255, d ^ 255)];
        const plain = classifyAddress(`${a}.${b}.${c}.${d}`);
        for (const form of [
          `::ffff:${front}:${back}`,
          `::ffff:0:${front}:${back}`,
          `64:ff9b::${front}:${back}`,
          `2002:${front}:${back}::1`,
          `2001:0:808:808:0:0:${x}:${y}`,
          `2600::5efe:${front}:${back}`,
        ]) {
          expect(classifyAddress(form), form).toBe(plain);
        }
      }),
    );
  });

  it('takes anything and never throws', () => {
    fc.assert(
      fc.property(fc.oneof(fc.string(), fc.ipV4(), fc.ipV6(), fc.ipV4Extended()), (text) => {
        classifyAddress(text);
      }),
    );
  });
});
