import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Bench, BenchDatabase } from './environment.ts';

/** Statement statistics of Postgres, written beside the CPU profiles when those are asked for. */
export async function resetStatements(bench: Bench, database: BenchDatabase): Promise<void> {
  if (bench.options.profile) await database.pool.query('select pg_stat_statements_reset()');
}

export async function noteStatements(
  bench: Bench,
  database: BenchDatabase,
  name: string,
): Promise<void> {
  if (!bench.options.profile) return;
  const answer = await database.pool.query<Record<string, number | string>>(/* sql */ `
    select calls, round(total_exec_time)::int as total_ms, rows, round((total_exec_time / calls)::numeric, 3) as mean_ms,
           toplevel, wal_bytes::bigint as wal_bytes, regexp_replace(left(query, 160), '[[:space:]]+', ' ', 'g') as query
    from pg_stat_statements where dbid = (select oid from pg_database where datname = current_database())
    order by total_exec_time desc limit 15`);
  const lines = answer.rows.map((row) => Object.values(row).join('\t'));
  const head = 'calls\ttotal_ms\trows\tmean_ms\ttoplevel\twal_bytes\tquery';
  writeFileSync(
    join(bench.options.profile, `${name}.statements.tsv`),
    `${[head, ...lines].join('\n')}\n`,
  );
}
