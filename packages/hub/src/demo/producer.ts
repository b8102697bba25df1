import { type PublishAnswer, toCloudEventJson } from '@streaming-hub/contract';
import { catalogueEvent } from '@streaming-hub/contract/fixtures';
import { uuidv7 } from 'uuidv7';
import { wait } from '../base/index.ts';
import type { Api } from './api.ts';
import type { Screen } from './screen.ts';
import type { Tally } from './tally.ts';

export interface ProducerOptions {
  readonly api: Api;
  readonly tally: Tally;
  readonly screen: Screen;
  readonly tenant_id: string;
  readonly publishEvery_ms: number;
}

/** Publishes one made-up event after the other until the signal aborts; one that is refused is sent again. */
export async function produce(options: ProducerOptions, signal: AbortSignal): Promise<void> {
  const { api, tally, screen, tenant_id, publishEvery_ms } = options;
  let next_ms = performance.now();
  let n = 0;
  let event = newEvent(n, tenant_id);
  while (!signal.aborted) {
    const { attributes, body } = event;
    const type = `${attributes['resourcetype']}.${attributes['eventtype']}`;
    try {
      const { data } = await api.post<PublishAnswer>(
        '/v1/events',
        toCloudEventJson(attributes, body),
        'application/cloudevents+json',
      );
      tally.addPublished();
      const known = tally.event(attributes['id'] ?? '', type);
      screen.line('published', known, `to the stream, partition ${data[0]?.partition}`);
      n += 1;
      event = newEvent(n, tenant_id);
    } catch (error) {
      screen.line('problem', null, `${type} could not be published: ${(error as Error).message}`);
    }
    next_ms += publishEvery_ms;
    await wait(Math.max(0, next_ms - performance.now()), signal);
  }
}

function newEvent(n: number, tenant_id: string) {
  return catalogueEvent(n, { tenant_id, now_ms: Date.now(), newId: uuidv7 });
}
