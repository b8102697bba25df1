import { type AcceptedEvent, type ContractRules, decodeRecord } from '@streaming-hub/contract';
import type { StreamRecord } from '../stream/index.ts';

export interface QuarantinedRecord {
  readonly record: StreamRecord;
  readonly reason: string;
  readonly detail: string;
}

/** A batch after every record has its verdict; record order is kept inside each list. */
export interface SortedBatch {
  readonly events: readonly { readonly event: AcceptedEvent; readonly body: Buffer | null }[];
  readonly quarantined: readonly QuarantinedRecord[];
  /** Dropped records by reason. */
  readonly drops: ReadonlyMap<string, number>;
}

/** Gives each record its verdict. Pure; `now_ms` is the wall clock. */
export function sortRecords(
  records: readonly StreamRecord[],
  rules: ContractRules,
  now_ms: number,
): SortedBatch {
  const events: { event: AcceptedEvent; body: Buffer | null }[] = [];
  const quarantined: QuarantinedRecord[] = [];
  const drops = new Map<string, number>();
  for (const record of records) {
    const verdict = decodeRecord(record, rules, now_ms);
    switch (verdict.verdict) {
      case 'accept':
        events.push({ event: verdict.event, body: record.value });
        break;
      case 'drop':
        drops.set(verdict.reason, (drops.get(verdict.reason) ?? 0) + 1);
        break;
      case 'quarantine':
        quarantined.push({ record, reason: verdict.reason, detail: verdict.detail });
        break;
      default:
        verdict satisfies never;
    }
  }
  return { events, quarantined, drops };
}
