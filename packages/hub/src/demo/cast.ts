import { flakySchedule_seconds, type Plan } from './plan.ts';

/** One receiver: how it behaves, and what it asks the hub for. */
export interface Part {
  readonly name: string;
  readonly manner: string;
  readonly event_types: readonly string[];
  readonly refuses: (n: number) => boolean;
  /** Of its subscription, beside URL and event types. */
  readonly wishes: Readonly<Record<string, unknown>>;
}

export function castFor(plan: Plan): readonly Part[] {
  const never = () => false;
  return [
    {
      name: 'healthy',
      manner: 'answers at once',
      event_types: ['*'],
      refuses: never,
      wishes: {},
    },
    {
      name: 'flaky',
      manner: 'fails every third request',
      event_types: ['transaction.*'],
      refuses: (n) => n % 3 === 0,
      wishes: { retry_schedule_seconds: flakySchedule_seconds },
    },
    {
      name: 'offline',
      manner: `goes away for ${plan.outage_ms / 1000} s, then comes back`,
      event_types: ['transaction.*', 'balance.*'],
      refuses: never,
      // Strict order: while one event waits, those behind it wait as well and cost no tries.
      wishes: { retry_schedule_seconds: plan.outageSchedule_seconds, hold_seconds: null },
    },
  ];
}

/** What is about to be seen, and what one can do meanwhile. */
export function introduction(
  url: string,
  cast: readonly Part[],
  subscriptions: ReadonlyMap<string, string>,
  seconds: number | null,
): string {
  const receivers = cast.map(
    ({ name, manner, event_types }) =>
      `  ${name.padEnd(9)}${manner.padEnd(38)}asked for ${event_types.join(', ')}\n`,
  );
  const commands = thingsToTry(url, subscriptions.get('flaky'));
  return `
A producer publishes events of a bank that does not exist. The hub stores each event once and
delivers it, signed, to every receiver that asked for its type; what fails is tried again.

${receivers.join('')}
The API is at ${url}. To try in another terminal:

${commands.map((command) => `  ${command}\n`).join('')}
${seconds === null ? 'Ctrl-C ends everything and leaves nothing behind.' : `It ends by itself in ${seconds} s.`}

`;
}

/** Commands for another terminal, which work as they stand. */
export function thingsToTry(url: string, flaky_id?: string): readonly string[] {
  return [
    `curl -s '${url}/v1/events?limit=2'`,
    `curl -s ${url}/v1/events -H 'content-type: application/cloudevents+json' -d '{"source":"crm","resourcetype":"holder","eventtype":"created","data":{"name":"Ada"}}'`,
    flaky_id === undefined
      ? `curl -s ${url}/v1/subscriptions`
      : `curl -s '${url}/v1/subscriptions/${flaky_id}/deliveries?limit=3'`,
  ];
}
