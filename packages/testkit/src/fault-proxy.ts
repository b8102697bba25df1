import type { AddressInfo, Socket } from 'node:net';
import { connect, createServer } from 'node:net';
import { setTimeout as pause } from 'node:timers/promises';

/**
 * - `pass`: everything goes through.
 * - `cut`: open connections are reset, new ones too.
 * - `blackhole`: connections stay open and new ones are accepted, but no byte moves until the mode changes.
 * - `delay`: every piece waits this long, each way.
 * - `throttle`: at most so many bytes a second, each way and per connection.
 */
export type FaultMode =
  | { readonly mode: 'pass' }
  | { readonly mode: 'cut' }
  | { readonly mode: 'blackhole' }
  | { readonly mode: 'delay'; readonly delay_ms: number }
  | { readonly mode: 'throttle'; readonly bytes_per_second: number };

export interface FaultProxy {
  readonly port: number;
  /** Changes the mode for open and new connections. */
  set(mode: FaultMode): void;
  /** Resets the open connections once, without changing the mode. */
  cutOpen(): void;
  readonly connections: { readonly accepted: number; readonly open: number };
  readonly bytes: { readonly to_target: number; readonly from_target: number };
  close(): Promise<void>;
}

/** Pieces moved at a time while throttled: small enough that the rate looks smooth. */
const THROTTLE_STEP_MS = 20;

/** A TCP proxy on a free loopback port in front of a TCP port of this machine or a Unix socket. */
export async function startFaultProxy(target: number | string): Promise<FaultProxy> {
  const sockets = new Set<Socket>();
  const waiting = new Set<() => void>();
  const bytes = { to_target: 0, from_target: 0 };
  let current: FaultMode = { mode: 'pass' };
  let accepted = 0;

  /** Returns once bytes may move. */
  async function gate(): Promise<void> {
    while (current.mode === 'blackhole') {
      await new Promise<void>((resolve) => waiting.add(resolve));
    }
  }

  async function move(chunk: Buffer, to: Socket): Promise<void> {
    await gate();
    if (current.mode === 'delay') {
      await pause(current.delay_ms);
      await gate();
    }
    if (current.mode !== 'throttle') return write(to, chunk);
    let offset = 0;
    while (offset < chunk.length) {
      await gate();
      const step = stepOf(current, chunk.length - offset);
      await write(to, chunk.subarray(offset, offset + step));
      offset += step;
      await pause(THROTTLE_STEP_MS);
    }
  }

  async function pump(from: Socket, to: Socket, way: keyof typeof bytes): Promise<void> {
    try {
      for await (const chunk of from as AsyncIterable<Buffer>) {
        await move(chunk, to);
        bytes[way] += chunk.length;
      }
      await gate();
      to.end();
    } catch {
      to.destroy(); // one side broke; the other must see it
    }
  }

  function track(socket: Socket): void {
    sockets.add(socket);
    socket.on('error', () => {}); // resets are what this proxy is for
    socket.once('close', () => sockets.delete(socket));
  }

  const server = createServer({ allowHalfOpen: true, noDelay: true }, (inbound) => {
    accepted += 1;
    track(inbound);
    if (current.mode === 'cut') return void inbound.resetAndDestroy();
    const outbound =
      typeof target === 'number'
        ? connect({ port: target, host: '127.0.0.1', allowHalfOpen: true, noDelay: true })
        : connect({ path: target, allowHalfOpen: true });
    track(outbound);
    outbound.once('error', () => inbound.resetAndDestroy());
    inbound.once('error', () => outbound.destroy());
    void pump(inbound, outbound, 'to_target');
    void pump(outbound, inbound, 'from_target');
  });
  await new Promise<void>((resolve, reject) => {
    server.once('error', reject);
    server.listen(0, '127.0.0.1', resolve);
  });

  const release = () => {
    for (const resolve of waiting) resolve();
    waiting.clear();
  };
  const cutOpen = () => {
    for (const socket of sockets) socket.resetAndDestroy();
  };
  return {
    port: (server.address() as AddressInfo).port,
    bytes,
    get connections() {
      return { accepted, open: sockets.size };
    },
    set(mode) {
      current = mode;
      if (mode.mode === 'cut') cutOpen();
      release();
    },
    cutOpen,
    close() {
      current = { mode: 'pass' };
      release();
      const closed = new Promise<void>((resolve) => server.close(() => resolve()));
      for (const socket of sockets) socket.destroy();
      return closed;
    },
  };
}

function stepOf(mode: FaultMode, left: number): number {
  if (mode.mode !== 'throttle') return left;
  return Math.min(left, Math.max(1, Math.floor((mode.bytes_per_second * THROTTLE_STEP_MS) / 1000)));
}

function write(to: Socket, chunk: Buffer): Promise<void> {
  return new Promise((resolve, reject) => {
    to.write(chunk, (error) => (error ? reject(error) : resolve()));
  });
}
