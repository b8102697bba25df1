import type { Setting } from './setting.ts';
import { settingsSections } from './table/index.ts';

const cell = (text: string) => text.replaceAll('|', '\\|');

function row(setting: Setting<unknown>): string {
  const secret = setting.secret ? ' **Secret.**' : '';
  const planned = setting.planned ? ' *Nothing acts on it yet.*' : '';
  return `| \`${setting.name}\` | ${cell(setting.defaultText)} | ${cell(setting.accepts)} | ${cell(setting.description)}${secret}${planned} |`;
}

/** The reference page, in Markdown, from the declared table. */
export function settingsReference(): string {
  const sections = settingsSections.map(([heading, settings]) =>
    [
      `## ${heading}`,
      '',
      '| name | default | accepts | what it does |',
      '|---|---|---|---|',
      ...Object.values<Setting<unknown>>(settings).map(row),
    ].join('\n'),
  );
  return [
    '<!-- Written by scripts/docs.ts from the table in packages/hub/src/settings; do not edit by hand. -->',
    '# Settings',
    'The hub reads environment variables once, at its start. An empty variable counts as absent. An unknown name or a value that does not fit stops the start with a sentence that says what to do.',
    ...sections,
    '',
  ]
    .join('\n\n')
    .replace(/\n+$/, '\n');
}
