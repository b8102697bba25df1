/** Free ports, and the question "does this broker answer, and how many brokers does it know?" without any client. */
import { readFileSync } from 'node:fs';
import { type AddressInfo, connect, createServer } from 'node:net';
import type { JavaProcess } from './kafka-process.ts';

const READY_TIMEOUT_ms = 60_000;
const PROBE_INTERVAL_ms = 20;

/** A free port below the ephemeral range, so that no outgoing connection takes it before the broker does. */
export async function freePort(): Promise<number> {
  for (let attempt = 0; attempt < 50; attempt += 1) {
    const candidate = 12_000 + Math.floor(Math.random() * 18_000);
    const port = await tryPort(candidate);
    if (port !== null) return port;
  }
  throw new Error('no free port between 12000 and 30000');
}

function tryPort(port: number): Promise<number | null> {
  return new Promise((resolve) => {
    const server = createServer();
    server.once('error', () => resolve(null));
    server.listen(port, '127.0.0.1', () => {
      const { port: bound } = server.address() as AddressInfo;
      server.close(() => resolve(bound));
    });
  });
}

/**
 * Metadata request, version 1, no topics: the answer's first number is the count of brokers that
 * take part. Resolves with 0 while nothing useful answers.
 */
function countBrokers(port: number): Promise<number> {
  const request = Buffer.alloc(4 + 2 + 2 + 4 + 2 + 4);
  request.writeInt32BE(request.length - 4, 0);
  request.writeInt16BE(3, 4); // api: metadata
  request.writeInt16BE(1, 6); // version
  request.writeInt32BE(7, 8); // correlation id
  request.writeInt16BE(-1, 12); // no client id
  request.writeInt32BE(0, 14); // no topics
  return new Promise((resolve) => {
    const socket = connect({ port, host: '127.0.0.1', timeout: 1_000 });
    let answer = Buffer.alloc(0);
    const finish = (count: number) => {
      socket.destroy();
      resolve(count);
    };
    socket.once('connect', () => socket.write(request));
    socket.on('data', (chunk) => {
      answer = Buffer.concat([answer, chunk]);
      if (answer.length >= 12) finish(answer.readInt32BE(8));
    });
    socket.once('error', () => finish(0));
    socket.once('timeout', () => finish(0));
    socket.once('close', () => finish(0));
  });
}

/** Waits until the broker at `port` knows `nodes` brokers; throws with its log when its process ends first. */
export async function waitUntilReady(
  port: number,
  nodes: number,
  java: JavaProcess,
): Promise<void> {
  const deadline = performance.now() + READY_TIMEOUT_ms;
  while ((await countBrokers(port)) < nodes) {
    if (java.exited) throw new Error(`the Kafka broker ended at start:\n${tail(java.log_file)}`);
    if (performance.now() > deadline) {
      throw new Error(`the Kafka broker was not ready in time:\n${tail(java.log_file)}`);
    }
    await new Promise((resolve) => setTimeout(resolve, PROBE_INTERVAL_ms));
  }
}

function tail(file: string): string {
  return readFileSync(file, 'utf8').split('\n').slice(-25).join('\n');
}
