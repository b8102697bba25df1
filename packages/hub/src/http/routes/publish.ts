import { encodeRecord, HubError, PublishAnswer, parseHttpEvents } from '@streaming-hub/contract';
import { uuidv7 } from 'uuidv7';
import type { HttpParts, HubApp } from '../parts.ts';
import { publishRecords } from '../publish.ts';

/** A batch of many small events or a few large ones; a single event may hold 1 MiB (more as base64). */
const body_bytes_max = 8 * 1024 * 1024;

/**
 * CloudEvents over HTTP in, records on the stream out: the same door that producers use, so what
 * is answered here has been appended and nothing more. Bodies are read as bytes, whatever their type.
 */
export function publishRoutes(app: HubApp, parts: HttpParts): void {
  app.removeAllContentTypeParsers();
  app.addContentTypeParser('*', { parseAs: 'buffer' }, (_request, body, done) => done(null, body));

  app.post(
    '/v1/events',
    { bodyLimit: body_bytes_max, schema: { response: { 202: PublishAnswer } } },
    async (request, reply) => {
      const events = parseHttpEvents(
        { headers: request.headers, body: bodyOf(request.body) },
        {
          tenant_id: request.principal.tenant_id,
          now_ms: parts.clock.now_ms(),
          newId: uuidv7,
          rules: parts.rules,
        },
      );
      const records = events.map((event) =>
        encodeRecord(event.attributes, event.body, parts.rules),
      );
      const positions = await publishRecords(parts, records);
      return reply.code(202).send({
        data: positions.map((position, index) => ({
          id: events[index]?.attributes['id'] ?? '',
          topic: position.topic,
          partition: position.partition,
          offset: String(position.offset),
        })),
      });
    },
  );
}

function bodyOf(body: unknown): Buffer {
  if (body === undefined || body === null) return Buffer.alloc(0);
  if (Buffer.isBuffer(body)) return body;
  throw new HubError('malformed_request', 'The body could not be read as bytes.');
}
