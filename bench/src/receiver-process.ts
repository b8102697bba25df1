/**
 * The receiver: a raw keep-alive HTTP sink in a process of its own, so cheap that it is not what is
 * measured. Answers 200 at once, or after N milliseconds on paths that begin with `/delay/N/`, and
 * returns the challenge of a verification. Started with IPC; commands and reports travel there.
 */
import { createServer, type Socket } from 'node:net';
import type { ReceiverCommand, ReceiverReport } from './receiver.ts';

const ok = Buffer.from('HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok');
const headEnd = Buffer.from('\r\n\r\n');
const lengthName = Buffer.from('content-length: ');
const lengthNameOther = Buffer.from('Content-Length: ');
const sentName = Buffer.from('"sent_ns":"');
/** Challenges are short; events of the benchmark are a kilobyte. */
const challengeBytes_max = 200;
const delayPath = /^POST \/delay\/(\d+)\//;

let received = 0;
let wanted = Number.POSITIVE_INFINITY;
let measuresLatency = false;
let latencies_ms: number[] = [];

function report(message: ReceiverReport): void {
  process.send?.(message);
}

function count(request: Buffer, bodyStart: number): void {
  received += 1;
  if (measuresLatency) noteLatency(request, bodyStart);
  if (received === 1) report({ kind: 'first' });
  if (received === wanted) report({ kind: 'reached' });
}

function noteLatency(request: Buffer, bodyStart: number): void {
  const at = request.indexOf(sentName, bodyStart);
  if (at < 0) return;
  const start = at + sentName.length;
  const sent_ns = BigInt(request.toString('latin1', start, request.indexOf(0x22, start)));
  latencies_ms.push(Number(process.hrtime.bigint() - sent_ns) / 1e6);
}

function respond(socket: Socket, request: Buffer, bodyStart: number): void {
  const body = request.subarray(bodyStart);
  if (body.length <= challengeBytes_max && body.includes('webhook.verify')) {
    const { challenge } = JSON.parse(body.toString()) as { challenge: string };
    socket.write(`HTTP/1.1 200 OK\r\ncontent-length: ${challenge.length}\r\n\r\n${challenge}`);
    return;
  }
  count(request, bodyStart);
  // '/d' in "POST /d…"
  if (request[6] === 0x64) {
    const delay = delayPath.exec(request.toString('latin1', 0, 40));
    if (delay) {
      setTimeout(() => socket.write(ok), Number(delay[1]));
      return;
    }
  }
  socket.write(ok);
}

function onConnection(socket: Socket): void {
  socket.setNoDelay(true);
  let pending: Buffer | null = null;
  socket.on('error', () => socket.destroy());
  socket.on('data', (chunk: Buffer) => {
    let data = pending ? Buffer.concat([pending, chunk]) : chunk;
    pending = null;
    while (data.length > 0) {
      const end = data.indexOf(headEnd);
      let length_at = end < 0 ? -1 : data.indexOf(lengthName);
      if (end >= 0 && length_at < 0) length_at = data.indexOf(lengthNameOther);
      const bodyBytes = length_at < 0 ? 0 : digits(data, length_at + lengthName.length);
      const total = end + headEnd.length + bodyBytes;
      if (end < 0 || data.length < total) {
        pending = data;
        return;
      }
      respond(socket, data.subarray(0, total), end + headEnd.length);
      data = data.subarray(total);
    }
  });
}

function digits(data: Buffer, start: number): number {
  let value = 0;
  for (let at = start; at < data.length; at += 1) {
    const digit = (data[at] as number) - 0x30;
    if (digit < 0 || digit > 9) break;
    value = value * 10 + digit;
  }
  return value;
}

function obey(command: ReceiverCommand): void {
  switch (command.kind) {
    case 'arm':
      received = 0;
      wanted = command.count;
      measuresLatency = command.latency;
      latencies_ms = [];
      report({ kind: 'armed' });
      return;
    case 'ask':
      report({ kind: 'state', received, latencies_ms });
      return;
    default:
      command satisfies never;
  }
}

process.on('message', obey);
process.on('disconnect', () => process.exit(0));
process.on('SIGINT', () => {});

const ports: number[] = [];
const portCount = Number(process.argv[2]);
for (let n = 0; n < portCount; n += 1) {
  const server = createServer(onConnection);
  server.listen(0, '127.0.0.1', () => {
    const address = server.address();
    if (address !== null && typeof address === 'object') ports.push(address.port);
    if (ports.length === portCount) report({ kind: 'listening', ports });
  });
}
