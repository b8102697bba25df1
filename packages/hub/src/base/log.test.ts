import { Writable } from 'node:stream';
import { expect, it } from 'vitest';
import { createLog } from './log.ts';

function capture() {
  const lines: Record<string, unknown>[] = [];
  const destination = new Writable({
    write(chunk: Buffer, _encoding, done) {
      lines.push(JSON.parse(chunk.toString()) as Record<string, unknown>);
      done();
    },
  });
  return { lines, destination };
}

it('writes one object a line, with a readable level and time', () => {
  const { lines, destination } = capture();
  createLog({ level: 'info', destination, fields: { version: '1' } }).info(
    { tenant_id: 'acme' },
    'hello',
  );
  expect(lines).toMatchObject([{ level: 'info', version: '1', tenant_id: 'acme', msg: 'hello' }]);
  expect(lines[0]?.['time']).toMatch(/^\d{4}-\d\d-\d\dT.*Z$/);
});

it('redacts secrets wherever they stand', () => {
  const { lines, destination } = capture();
  const log = createLog({ level: 'info', destination });
  log.info({
    secret: 'whsec_1',
    headers: { authorization: 'Bearer shk_1' },
    settings: { kafka: { password: 'hunter2' }, database: { pool: { dsn: 'postgres://u:p@h' } } },
  });
  const text = JSON.stringify(lines);
  expect(text).not.toMatch(/whsec_1|shk_1|hunter2|postgres:/);
  expect(text.match(/\[redacted\]/g)).toHaveLength(4);
});

it('logs nothing when silent', () => {
  const { lines, destination } = capture();
  createLog({ level: 'silent', destination }).fatal('nobody hears this');
  expect(lines).toEqual([]);
});
