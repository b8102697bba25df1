import type pg from 'pg';

/**
 * Removes every member of every group: for the start of a process that has this database to
 * itself. Members it finds belong to a process that was killed, and whose lease nobody need wait for.
 */
export async function removeLeftMembers(pool: pg.Pool): Promise<void> {
  await pool.query(/* sql */ `
    with gone as (delete from stream_members)
    update stream_assignments set owner = null, target = null`);
}
