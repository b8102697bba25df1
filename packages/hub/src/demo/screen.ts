import type { SummaryRow } from './tally.ts';

/** What can happen in the demo, in the words the reader sees. */
const colours = {
  published: 34,
  stored: 36,
  delivered: 32,
  failed: 31,
  retried: 33,
  offline: 31,
  back: 33,
  recovered: 32,
  gave_up: 31,
  redriven: 33,
  problem: 31,
  try_this: 35,
} as const;
export type Happening = keyof typeof colours;

export interface Subject {
  readonly number: number;
  readonly event_type: string;
}

/** Prints one line per happening. */
export interface Screen {
  /** Lines carry the time since this moment. */
  begin(): void;
  text(text: string): void;
  line(happening: Happening, subject: Subject | null, detail: string): void;
}

const columns = { time: 7, happening: 9, number: 4, event_type: 24 };

export function createScreen(out: NodeJS.WriteStream): Screen {
  const isColoured = out.isTTY && (process.env['NO_COLOR'] ?? '') === '';
  const paint = (code: number, text: string) =>
    isColoured ? `\u001b[${code}m${text}\u001b[0m` : text;
  let begun_ms = performance.now();
  return {
    begin: () => {
      begun_ms = performance.now();
    },
    text: (text) => void out.write(text),
    line: (happening, subject, detail) => {
      const time = `${((performance.now() - begun_ms) / 1000).toFixed(1)} s`;
      const word = happening.replace('_', ' ').padEnd(columns.happening);
      const about = subject
        ? `${`#${subject.number}`.padEnd(columns.number)} ${subject.event_type.padEnd(columns.event_type)}  `
        : '';
      out.write(
        `${time.padStart(columns.time)}  ${paint(colours[happening], word)}  ${about}${detail}\n`,
      );
    },
  };
}

/** One line per receiver. Stopped early, what has not arrived is not called lost. */
export function summaryTable(rows: readonly SummaryRow[], isStopped: boolean): string {
  const headings = [
    'receiver',
    'asked for',
    'delivered',
    'retries',
    'valid signatures',
    'in order',
    'duplicates',
    isStopped ? 'on its way' : 'lost',
  ];
  const cells = rows.map((row) => [
    row.receiver,
    String(row.expected),
    String(row.delivered),
    String(row.retries),
    `${row.valid} of ${row.arrivals}`,
    row.isInOrder ? 'yes' : 'no',
    String(row.duplicates),
    String(row.lost),
  ]);
  const widths = headings.map((heading, column) =>
    Math.max(heading.length, ...cells.map((row) => row[column]?.length ?? 0)),
  );
  return [headings, ...cells]
    .map((row) => {
      const padded = row.map((cell, column) =>
        column === 0 ? cell.padEnd(widths[column] ?? 0) : cell.padStart(widths[column] ?? 0),
      );
      return `  ${padded.join('   ')}\n`;
    })
    .join('');
}
