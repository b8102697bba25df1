import { limits } from './limits.ts';

const pattern = /^(?:\*|([A-Za-z0-9_-]+)\.(?:\*|([A-Za-z0-9_-]+)))$/;

/** True for what a subscription may ask for: `resource.event`, `resource.*` or `*`. */
export function checkEventTypePattern(text: string): boolean {
  const parts = pattern.exec(text);
  if (parts === null) return false;
  const [, resource = '', event = ''] = parts;
  return resource.length <= limits.resource_bytes_max && event.length <= limits.event_bytes_max;
}

/** True when an event type falls under a subscription's pattern. */
export function matchesEventType(pattern: string, event_type: string): boolean {
  if (pattern === '*' || pattern === event_type) return true;
  if (!pattern.endsWith('.*')) return false;
  const dot = event_type.indexOf('.');
  return dot === pattern.length - 2 && event_type.startsWith(pattern.slice(0, dot + 1));
}
