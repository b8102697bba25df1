/** Identity of a delivery inside the hub; the public id packs it into a UUIDv7. */
export interface DeliveryKey {
  readonly lane_id: number;
  readonly seq: number;
  readonly subscription_number: number;
}

/** One page of a list; `next` is null at its end. */
export interface Page<T, C> {
  readonly rows: readonly T[];
  readonly next: C | null;
}
