import { type Action, actionOf, type Block, blocksOf, neededProgram } from './blocks.ts';

const expectTimeout_seconds = 60;

/** A shell script that does what a page says, in its order. What the page prints stands in `said`. */
export function scriptOf(markdown: string): string {
  return [
    'set -euo pipefail',
    // What still runs is ended, and waited for: a hub needs a moment.
    "trap 'kill $(jobs -p) 2> /dev/null || true; wait' EXIT",
    'exec > said 2>&1',
    `expect() {
  for _ in $(seq ${expectTimeout_seconds * 10}); do
    grep -qE -- "$2" said && return
    sleep 0.1
  done
  echo "LINE $1 EXPECTS: $2"
  exit 1
}`,
    ...blocksOf(markdown).map((block) => ifPossible(block, stepOf(actionOf(block)))),
  ].join('\n');
}

/** In words where it is left out, so that nobody takes it for tried. */
function ifPossible(block: Block, step: string): string {
  const program = neededProgram(block);
  if (program === null) return step;
  return `if command -v ${program} > /dev/null; then\n${step}\nelse echo "LINE ${block.line} SKIPPED: no ${program}"; fi`;
}

function stepOf(action: Action): string {
  const { text, line } = action.block;
  switch (action.kind) {
    case 'run':
      return `echo "LINE ${line}"\n${text}\necho`;
    case 'background':
      return `echo "LINE ${line}"\n${text} &`;
    case 'file':
      return `cat > ${action.name} <<'END OF FILE'\n${text}\nEND OF FILE`;
    case 'expect':
      return text
        .split('\n')
        .filter((expected) => expected.trim() !== '')
        .map((expected) => `expect ${line} ${quoted(patternOf(expected.trim()))}`)
        .join('\n');
    case 'elsewhere':
    case 'none':
      return '';
    default:
      return action satisfies never;
  }
}

/** Spaces count as one, so that tables may be aligned otherwise. */
function patternOf(expected: string): string {
  return expected
    .replaceAll(/[.*+?^${}()|[\]\\]/g, '\\$&')
    .replaceAll('…', '.*')
    .replaceAll(/ +/g, ' +');
}

function quoted(text: string): string {
  return `'${text.replaceAll("'", "'\\''")}'`;
}
