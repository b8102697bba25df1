import { spawnSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

/** Runs every test and closes with one plain line of counts. Arguments go to vitest. */
const folder = mkdtempSync(join(tmpdir(), 'streaming-hub-test-'));
const report = join(folder, 'report.json');
const run = spawnSync(
  process.execPath,
  [
    'node_modules/vitest/vitest.mjs',
    'run',
    '--reporter=default',
    '--reporter=json',
    `--outputFile.json=${report}`,
    ...process.argv.slice(2),
  ],
  { stdio: 'inherit' },
);

const counts = { passed: 0, failed: 0, skipped: 0 };
try {
  const { numPassedTests, numFailedTests, numPendingTests, numTodoTests, numFailedTestSuites } =
    JSON.parse(readFileSync(report, 'utf8')) as Record<string, number>;
  counts.passed = numPassedTests ?? 0;
  // A file that could not even be loaded counts as one failure.
  counts.failed = (numFailedTests ?? 0) || (numFailedTestSuites ?? 0);
  counts.skipped = (numPendingTests ?? 0) + (numTodoTests ?? 0);
} catch {
  counts.failed = 1;
}
rmSync(folder, { recursive: true, force: true });
if (run.status !== 0 && counts.failed === 0) counts.failed = 1;
console.log(`${counts.passed} passed, ${counts.failed} failed, ${counts.skipped} skipped`);
process.exitCode = counts.failed === 0 ? 0 : 1;
