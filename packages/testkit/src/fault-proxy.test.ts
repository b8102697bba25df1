import type { AddressInfo, Socket } from 'node:net';
import { connect, createServer } from 'node:net';
import { afterEach, describe, expect, it } from 'vitest';
import type { FaultProxy } from './fault-proxy.ts';
import { startFaultProxy } from './fault-proxy.ts';
import { until } from './until.ts';

const ended: (() => unknown)[] = [];
afterEach(async () => {
  for (const end of ended.splice(0).reverse()) await end();
});

/** A server that repeats what it gets, with the proxy in front of it. */
async function echoBehindProxy(): Promise<FaultProxy> {
  const server = createServer((socket) => {
    socket.on('error', () => {});
    socket.pipe(socket);
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const proxy = await startFaultProxy((server.address() as AddressInfo).port);
  ended.push(
    () => server.close(),
    () => proxy.close(),
  );
  return proxy;
}

function client(proxy: FaultProxy): { socket: Socket; text: () => string; state: () => string } {
  const socket = connect(proxy.port, '127.0.0.1');
  let text = '';
  let state = 'open';
  socket.on('data', (chunk: Buffer) => {
    text += chunk.toString();
  });
  socket.on('error', (error: NodeJS.ErrnoException) => {
    state = error.code ?? 'error';
  });
  socket.on('end', () => {
    state = 'ended';
  });
  ended.push(() => socket.destroy());
  return { socket, text: () => text, state: () => state };
}

describe('the fault proxy', () => {
  it('passes bytes and ends both ways', async () => {
    const { socket, text, state } = client(await echoBehindProxy());
    socket.end('hello');
    await until(() => state() === 'ended');
    expect(text()).toBe('hello');
  });

  it('holds bytes back while it is a black hole, and lets them through afterwards', async () => {
    const proxy = await echoBehindProxy();
    const { socket, text } = client(proxy);
    socket.write('a');
    await until(() => text() === 'a');
    proxy.set({ mode: 'blackhole' });
    socket.write('b');
    const late = client(proxy);
    late.socket.write('c');
    await until(() => proxy.connections.accepted === 2);
    await new Promise((resolve) => setTimeout(resolve, 50)); // nothing must come: only time can show it
    expect(text() + late.text()).toBe('a');
    proxy.set({ mode: 'pass' });
    await until(() => text() === 'ab' && late.text() === 'c');
  });

  it('cuts what is open and what comes', async () => {
    const proxy = await echoBehindProxy();
    const { socket, text, state } = client(proxy);
    socket.write('a');
    await until(() => text() === 'a');
    proxy.set({ mode: 'cut' });
    await until(() => state() === 'ECONNRESET');
    const late = client(proxy);
    await until(() => late.state() === 'ECONNRESET');
    proxy.set({ mode: 'pass' });
    const again = client(proxy);
    again.socket.write('b');
    await until(() => again.text() === 'b');
  });

  it('delays each way', async () => {
    const proxy = await echoBehindProxy();
    proxy.set({ mode: 'delay', delay_ms: 40 });
    const { socket, text } = client(proxy);
    const started_ms = performance.now();
    socket.write('a');
    await until(() => text() === 'a');
    expect(performance.now() - started_ms).toBeGreaterThanOrEqual(75);
  });

  it('limits bytes per second', async () => {
    const proxy = await echoBehindProxy();
    proxy.set({ mode: 'throttle', bytes_per_second: 10_000 });
    const { socket, text } = client(proxy);
    const started_ms = performance.now();
    socket.write('x'.repeat(2_000));
    await until(() => text().length === 2_000);
    expect(performance.now() - started_ms).toBeGreaterThan(150);
  });

  it('refuses through when its target is down', async () => {
    const proxy = await startFaultProxy(1); // nothing listens on port 1
    ended.push(() => proxy.close());
    const { state } = client(proxy);
    await until(() => state() === 'ECONNRESET');
  });
});
