export { listQuarantine, type QuarantinedHeader, type QuarantineEntry } from './quarantine.ts';
export {
  type EventKey,
  type EventPage,
  listEvents,
  page_events_max,
  readEvent,
  readEvents,
} from './read.ts';
export { type EventRow, eventColumns, toStoredEvent } from './row.ts';
export type { StoredEvent } from './types.ts';
