import { CloudEvent, HTTP, Kafka } from 'cloudevents';
import { Webhook } from 'standardwebhooks';
import { describe, expect, test } from 'vitest';
import { catalogueEvents } from '../fixtures/index.ts';
import {
  type Attributes,
  buildWebhookRequest,
  decodeRecord,
  defaultRules,
  encodeRecord,
  newWebhookSecret,
  parseHttpEvents,
  type RawHeader,
} from '../src/index.ts';

const now_ms = Date.UTC(2026, 0, 15, 12);
const events = catalogueEvents();
const subject = 'Café com 50% de "açúcar"';

function sdkEvent(attributes: Attributes, body: Buffer): CloudEvent<unknown> {
  return new CloudEvent<unknown>({ ...attributes, data: JSON.parse(body.toString()) as unknown });
}

function webhook(
  attributes: Attributes,
  body: Buffer | null,
  format: 'binary' | 'structured',
  secrets: string[],
) {
  return buildWebhookRequest({
    event: { attributes, body, event_type: 'account.created' },
    format,
    header_prefix: 'X-Lerian-',
    secrets,
    attempt: 1,
    delivery_attempt_id: '019bc1f1-8600-7000-8000-0000000000ff',
    replay_id: null,
    timestamp_seconds: Math.floor(Date.now() / 1000),
    user_agent: 'streaming-hub/test',
    extra_headers: {},
  });
}

function lowerCaseNames(headers: Record<string, string>): Record<string, string> {
  return Object.fromEntries(
    Object.entries(headers).map(([name, value]) => [name.toLowerCase(), value]),
  );
}

describe('the cloudevents SDK', () => {
  test('its Kafka records are accepted', () => {
    for (const { attributes, body } of events) {
      const message = Kafka.binary(sdkEvent({ ...attributes, subject }, body));
      const headers = Object.entries(message.headers)
        .filter(([, value]) => value !== undefined)
        .map(([key, value]): RawHeader => [Buffer.from(key), Buffer.from(String(value))]);
      const value = Buffer.from(JSON.stringify(message.value));
      const verdict = decodeRecord({ topic: 't', headers, value }, defaultRules, now_ms);
      expect(verdict).toMatchObject({
        verdict: 'accept',
        event: { id: attributes['id'], attributes: { ...attributes, subject } },
      });
    }
  });

  test('it reads our Kafka records', () => {
    for (const { attributes, body } of events) {
      const record = encodeRecord(attributes, body, defaultRules);
      const headers = Object.fromEntries(
        record.headers.map(([key, value]) => [key.toString().replace('-', '_'), value.toString()]),
      );
      const message = { headers, body: '', key: '', value: body.toString(), timestamp: '' };
      const event = Kafka.toEvent(message);
      expect(event).toMatchObject({ id: attributes['id'], type: attributes['type'] });
    }
  });

  test.each(['binary', 'structured'] as const)('it parses our %s webhooks', (format) => {
    for (const { attributes, body } of events) {
      const { headers, body: sent } = webhook(attributes, body, format, [newWebhookSecret()]);
      const event = HTTP.toEvent<unknown>({
        headers: lowerCaseNames(headers),
        body: sent.toString(),
      });
      expect(Array.isArray(event)).toBe(false);
      const parsed = event as CloudEvent<unknown>;
      expect(parsed.validate()).toBe(true);
      expect(parsed).toMatchObject(attributes);
      expect(parsed.data).toEqual(JSON.parse(body.toString()));
    }
  });

  test('it parses our webhook without a body', () => {
    const [event] = events;
    const { headers, body } = webhook(event?.attributes as Attributes, null, 'structured', [
      newWebhookSecret(),
    ]);
    const parsed = HTTP.toEvent<unknown>({ headers, body: body.toString() });
    expect(parsed).toMatchObject(event?.attributes as Attributes);
  });

  test.each(['binary', 'structured'] as const)('we parse its %s HTTP messages', (mode) => {
    for (const { attributes, body } of events) {
      const message = HTTP[mode](sdkEvent(attributes, body));
      const [event] = parseHttpEvents(
        {
          headers: lowerCaseNames(message.headers as Record<string, string>),
          body: Buffer.from(String(message.body)),
        },
        { tenant_id: 'default', now_ms, newId: () => 'unused', rules: defaultRules },
      );
      expect(event?.attributes).toMatchObject({
        ...attributes,
        datacontenttype: expect.stringMatching(/^application\/json/) as string,
      });
      expect(JSON.parse(String(event?.body))).toEqual(JSON.parse(body.toString()));
    }
  });
});

describe('the standardwebhooks package', () => {
  test.each(['binary', 'structured'] as const)(
    'verifies our %s signatures under each live secret',
    (format) => {
      const secrets = [newWebhookSecret(), newWebhookSecret()];
      const [event] = events;
      const { headers, body } = webhook(
        event?.attributes as Attributes,
        event?.body as Buffer,
        format,
        secrets,
      );
      expect(headers['webhook-signature']?.split(' ')).toHaveLength(2);
      for (const secret of secrets) {
        expect(new Webhook(secret).verify(body, headers)).toBeTruthy();
      }
      expect(() => new Webhook(newWebhookSecret()).verify(body, headers)).toThrow(/signature/i);
      const [newest] = secrets;
      const first = headers['webhook-signature']?.split(' ')[0] as string;
      const only = { ...headers, 'webhook-signature': first };
      expect(new Webhook(newest as string).verify(body, only)).toBeTruthy();
    },
  );
});
