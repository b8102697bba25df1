import type { Result } from './figures.ts';

const width = 34;

/** Ratios first: rates move with whatever else the machine does, ratios within one run do not. */
export function printResult(result: Result): void {
  console.log(`${result.id}  bar: ${result.bar}`);
  for (const [name, value] of Object.entries(result.ratios))
    console.log(`  ${name.padEnd(width)} ${value}`);
  for (const [name, value] of Object.entries(result.figures))
    console.log(`  ${name.padEnd(width)} ${value}`);
  console.log(`  ${result.met ? 'bar met' : 'bar NOT met'}`);
}
