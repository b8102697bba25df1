import { afterAll, beforeAll, describe } from 'vitest';
import { consumingCases } from './conformance/consuming.ts';
import { groupCases } from './conformance/groups.ts';
import {
  type ConformanceOptions,
  createHarness,
  type Harness,
  type OpenedStream,
} from './conformance/harness.ts';
import { publishingCases } from './conformance/publishing.ts';

export type { ConformanceOptions, OpenedStream } from './conformance/harness.ts';

/**
 * What every adapter of the stream port has to do, as tests. `open` is called once; each case
 * works on topics and groups of its own.
 */
export function streamConformance(
  name: string,
  open: () => Promise<OpenedStream>,
  options: ConformanceOptions = {},
): void {
  describe(`stream conformance: ${name}`, () => {
    let opened: OpenedStream;
    let harness: Harness;
    beforeAll(async () => {
      opened = await open();
      harness = createHarness(opened, options);
    });
    afterAll(async () => {
      await harness?.stopAll();
      await opened?.close();
    });
    publishingCases(() => harness);
    consumingCases(() => harness);
    groupCases(() => harness);
  });
}
