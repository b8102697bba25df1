import type { Setting } from './setting.ts';
import { type SettingKey, settingsTable } from './table/index.ts';
import type { Settings } from './types.ts';

export interface DescribedSetting {
  readonly name: string;
  /** As one would write it; secrets are masked. */
  readonly value: string;
  readonly from: 'environment' | 'default';
}

/** Names of given variables that nothing acts on yet: worth a warning at the start. */
export function settingsWithoutEffect(settings: Settings): readonly string[] {
  return Object.values<Setting<unknown>>(settingsTable)
    .filter((setting) => setting.planned && settings.given.has(setting.name))
    .map((setting) => setting.name);
}

const mask = '***';

/** The effective configuration, one entry per setting that has a value, safe to print and log. */
export function describeSettings(settings: Settings): readonly DescribedSetting[] {
  const described: DescribedSetting[] = [];
  for (const [key, setting] of Object.entries(settingsTable) as [SettingKey, Setting<unknown>][]) {
    const value = setting.format(settings[key]);
    if (value === '') continue;
    described.push({
      name: setting.name,
      value: setting.secret ? maskSecret(value) : value,
      from: settings.given.has(setting.name) ? 'environment' : 'default',
    });
  }
  return described;
}

/** Of a connection string the address stays readable; of anything else nothing does. */
function maskSecret(value: string): string {
  if (!/^postgres(ql)?:\/\//.test(value) || !URL.canParse(value)) return mask;
  const url = new URL(value);
  const user = url.username === '' ? '' : `${url.username}:${mask}@`;
  return `${url.protocol}//${user}${url.host}${url.pathname}`;
}
