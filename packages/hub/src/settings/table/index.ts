import type { Setting } from '../setting.ts';
import { deliverySettings } from './delivery.ts';
import { processSettings } from './process.ts';
import { storeSettings } from './store.ts';
import { streamSettings } from './stream.ts';

/** Every environment variable the hub reads, in the order of the reference page. */
export const settingsTable = {
  ...processSettings,
  ...streamSettings,
  ...storeSettings,
  ...deliverySettings,
} as const;

/** The same with headings. */
export const settingsSections = [
  ['Process and HTTP', processSettings],
  ['Stream', streamSettings],
  ['Postgres', storeSettings],
  ['Delivery', deliverySettings],
] as const;

type Table = typeof settingsTable;
export type SettingKey = keyof Table;
export type DeclaredSettings = {
  readonly [K in SettingKey]: Table[K] extends Setting<infer T> ? T : never;
};

/** Names that other releases of such a hub knew and this one does not; a sentence says what to do instead. */
export const retiredSettings: readonly (readonly [pattern: RegExp, advice: string])[] = [
  [/^STREAMING_HUB_REDIS_/, 'the hub needs no Redis: remove it'],
  [
    /^STREAMING_HUB_(MULTI_TENANT|TENANT_MANAGER)_/,
    'tenants come from credentials and events, so remove it',
  ],
  [
    /^STREAMING_HUB_SWAGGER_ENABLED$/,
    'nothing has to be switched on for the API description: remove it',
  ],
  [/^STREAMING_HUB_AWS_/, 'the hub uses no AWS account of its own: remove it'],
  [
    /^STREAMING_HUB_MANIFEST_SOURCES$/,
    'the catalogue does not decide what is delivered: remove it',
  ],
];
