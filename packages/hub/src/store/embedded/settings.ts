/** How our Postgres is run. Given on the command line, so that an upgrade of the hub changes them. */
const fixed: Readonly<Record<string, string>> = {
  // Durable: what was acknowledged survives a power loss.
  fsync: 'on',
  synchronous_commit: 'on',
  // Reached through the socket only.
  listen_addresses: '',
  unix_socket_permissions: '0700',
  max_connections: '100',
  shared_buffers: '128MB',
  dynamic_shared_memory_type: 'mmap',
  // An append-only log: few, spread-out checkpoints; full pages compressed.
  max_wal_size: '2GB',
  checkpoint_timeout: '15min',
  wal_compression: 'pglz',
  // Our statements are short; compiling them costs more than running them.
  jit: 'off',
  // Fewer processes; nothing here reads enough at once to gain from workers.
  io_method: 'sync',
  log_min_messages: 'warning',
  log_line_prefix: '',
  timezone: 'UTC',
  log_timezone: 'UTC',
};

/** `-c name=value …` for the postgres program. */
export function serverArguments(own: Readonly<Record<string, string>>): string[] {
  return Object.entries({ ...fixed, ...own }).flatMap(([name, value]) => [
    '-c',
    `${name}=${value}`,
  ]);
}
