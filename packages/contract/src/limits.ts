/** Ceilings of the wire contract. Sizes are bytes of UTF-8 unless the name says otherwise. */
export const limits = {
  id_bytes_max: 256,
  tenant_bytes_max: 256,
  resource_bytes_max: 128,
  event_bytes_max: 128,
  subject_bytes_max: 1024,
  schema_version_bytes_max: 64,
  content_type_bytes_max: 256,
  data_schema_bytes_max: 2048,
  /** A record's value, and therefore an event's body. */
  value_bytes_max: 1_048_576,
  /** A v3 source, so that the longest topic made from it fits Kafka's 249 bytes. */
  source_bytes_max: 223,
  /** A v1 source is any URI reference. */
  v1_source_bytes_max: 1024,
  time_bytes_max: 64,
  type_bytes_max: 512,
  trace_state_bytes_max: 2048,
  /** All names and values of one record's event headers together. */
  attributes_bytes_max: 65_536,
  extensions_max: 64,
  extension_name_bytes_max: 64,
  /** Events of one HTTP batch. */
  http_batch_events_max: 500,
  retry_steps_max: 12,
  retry_step_seconds_max: 36_000,
  tenant_headers_max: 32,
  tenant_header_value_bytes_max: 4096,
  event_types_max: 100,
} as const;

/** A subscription may pin a schema major; it is a 32-bit integer in storage. */
export const schemaMajorMax = 2_147_483_647;
