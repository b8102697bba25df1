import pg from 'pg';

/**
 * What a failed ingest transaction means:
 * - `partition`: the week of an id, or of the sequence, has no table yet
 * - `content`: the database refuses something that a record carries
 * - `other`: everything that may pass by itself: connection, time-out, disk, restart
 */
export type Refusal = 'partition' | 'content' | 'other';

const check_violation = '23514';
const unique_violation = '23505';

export function classify(error: unknown): Refusal {
  if (!(error instanceof pg.DatabaseError) || error.code === undefined) return 'other';
  if (error.code === check_violation && isPartitioned(error.table)) return 'partition';
  if (error.code === unique_violation) return 'other';
  switch (error.code.slice(0, 2)) {
    case '22': // data exception: invalid text, JSON, number
    case '23': // integrity
    case '54': // a limit of the program: too long for an index …
      return 'content';
    default:
      return 'other';
  }
}

/** "No partition found" and a failed check constraint share a code; the tables of the first have no checks. */
function isPartitioned(table: string | undefined): boolean {
  return table === 'event_inbox' || table === 'deliveries';
}
