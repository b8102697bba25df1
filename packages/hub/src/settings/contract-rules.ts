import { type ContractRules, defaultRules } from '@streaming-hub/contract';
import type { Settings } from './types.ts';

/** The wire contract as configured. */
export function contractRules(
  settings: Pick<Settings, 'contract' | 'topicPrefix' | 'typePrefix' | 'tenants'>,
): ContractRules {
  return {
    ...defaultRules,
    grammar: settings.contract,
    topic_prefix: settings.topicPrefix,
    type_prefix: settings.typePrefix,
    tenants: settings.tenants.length === 0 ? null : new Set(settings.tenants),
  };
}
