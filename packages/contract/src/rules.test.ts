import { describe, expect, test } from 'vitest';
import { catalogueEvents } from '../fixtures/index.ts';
import {
  type ContractRules,
  defaultRules,
  dlqTopicPattern,
  ingestTopicPattern,
  topicFor,
} from './rules.ts';

const v1: ContractRules = { ...defaultRules, grammar: 'v1' };
const longest = `l${'x'.repeat(222)}`;

const table: readonly [topic: string, v3: string, v1: string][] = [
  ['lerian.streaming.ledger', 'ingest', ''],
  ['lerian.streaming.consignado-gw', 'ingest', ''],
  ['lerian.streaming.0_a', 'ingest', ''],
  [`lerian.streaming.${longest}`, 'ingest', ''],
  [`lerian.streaming.${longest}x`, '', ''],
  ['lerian.streaming.ledger.dlq', 'dlq', 'dlq'],
  ['lerian.streaming.ledger.commands', '', ''],
  ['lerian.streaming.ledger.commands.dlq', '', 'dlq'],
  ['lerian.streaming.ledger_account.created', '', 'ingest'],
  ['lerian.streaming.ledger_account.created.v2', '', 'ingest'],
  ['lerian.streaming.ledger_account.created.dlq', '', 'dlq'],
  ['lerian.streaming.ledger_account.created.v2.dlq', '', 'dlq'],
  ['lerian.streaming.-ledger', '', ''],
  ['lerian.streaming.Ledger', '', ''],
  ['lerian.streaming.', '', ''],
  ['lerian.streaming', '', ''],
  ['lerianxstreaming.ledger', '', ''],
  ['xlerian.streaming.ledger', '', ''],
  ['lerian.streaming.ledger\n', '', ''],
];

describe.each([
  ['v3', defaultRules, 1],
  ['v1', v1, 2],
] as const)('topics of %s', (_name, rules, column) => {
  test.each(table)('%s', (...row) => {
    const [topic] = row;
    expect(ingestTopicPattern(rules).test(topic)).toBe(row[column] === 'ingest');
    expect(dlqTopicPattern(rules).test(topic)).toBe(row[column] === 'dlq');
  });

  test('every catalogue event goes to a topic that is ingested', () => {
    for (const { attributes } of catalogueEvents()) {
      expect(topicFor(attributes, rules)).toMatch(ingestTopicPattern(rules));
    }
  });
});

test('a prefix is taken literally', () => {
  const rules = { ...defaultRules, topic_prefix: 'my.(x)+' };
  expect(ingestTopicPattern(rules).test('my.(x)+ledger')).toBe(true);
  expect(ingestTopicPattern(rules).test('my.xxledger')).toBe(false);
});

test('v1 topics carry service, resource, event and a major from 2 on', () => {
  const attributes = { source: 'consignado-gw', resourcetype: 'loan', eventtype: 're-opened' };
  expect(topicFor({ ...attributes, schemaversion: '1.4.0' }, v1)).toBe(
    'lerian.streaming.consignado_gw_loan.re_opened',
  );
  expect(topicFor({ ...attributes, schemaversion: '3.0.0' }, v1)).toBe(
    'lerian.streaming.consignado_gw_loan.re_opened.v3',
  );
});
