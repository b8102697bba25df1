import type { Socket } from 'node:net';
import { connect } from 'node:net';

/** How long one address gets before the next is tried beside it (RFC 8305 advises 250 ms). */
const NEXT_ADDRESS_AFTER_MS = 250;

/**
 * Connects to the first address that answers: they are started one after the other, a slow one is
 * not given up but raced, and the losers are closed. Never resolves a name itself.
 * Rejects with the last system error, or with the signal's reason.
 */
export function dial(
  addresses: readonly string[],
  port: number,
  signal: AbortSignal,
): Promise<Socket> {
  return new Promise((resolve, reject) => {
    const open = new Set<Socket>();
    let nextIndex = 0;
    let timer: NodeJS.Timeout | undefined;
    let isDone = false;

    const finish = (winner: Socket | null, error: unknown) => {
      if (isDone) return;
      isDone = true;
      clearTimeout(timer);
      signal.removeEventListener('abort', onAbort);
      for (const socket of open) if (socket !== winner) socket.destroy();
      if (winner === null) reject(error);
      else resolve(winner);
    };
    const onAbort = () => finish(null, signal.reason);

    const startNext = () => {
      clearTimeout(timer);
      const address = addresses[nextIndex];
      if (isDone || address === undefined) return;
      nextIndex += 1;
      const socket = connect({ host: address, port, noDelay: true, keepAlive: true });
      open.add(socket);
      const onError = (error: Error) => {
        open.delete(socket);
        socket.destroy();
        if (nextIndex < addresses.length) startNext();
        else if (open.size === 0) finish(null, error);
      };
      socket.once('error', onError);
      socket.once('connect', () => {
        socket.removeListener('error', onError);
        finish(socket, null);
      });
      if (nextIndex < addresses.length) timer = setTimeout(startNext, NEXT_ADDRESS_AFTER_MS);
    };

    if (signal.aborted) return reject(signal.reason);
    signal.addEventListener('abort', onAbort, { once: true });
    startNext();
  });
}
