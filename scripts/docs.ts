/** Writes the generated pages of docs/reference. Run: node scripts/docs.ts */
import { mkdirSync, writeFileSync } from 'node:fs';
import { settingsReference } from '../packages/hub/src/settings/index.ts';

const folder = new URL('../docs/reference/', import.meta.url);
mkdirSync(folder, { recursive: true });
writeFileSync(new URL('settings.md', folder), settingsReference());
