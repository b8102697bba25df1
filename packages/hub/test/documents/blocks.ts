/**
 * Fenced blocks of our documents. The first word after the fence is the language; what a reader does
 * not see behind it says what the tests do with the block:
 *
 *   ```sh test                run, in the order of the page, in one shell
 *   ```sh background          started; it goes on until the page is through
 *   ```sh tested-by PATH      run by that test instead
 *   ```js receiver.mjs        written to a file of this name
 *   ```text expect            each line was, or will soon be, printed; … stands for anything
 *
 * `needs:PROGRAM` behind any of these leaves the block out where that program is missing.
 */
export interface Block {
  readonly language: string;
  readonly marks: readonly string[];
  readonly text: string;
  /** Of the opening fence, from 1. */
  readonly line: number;
}

export function blocksOf(markdown: string): readonly Block[] {
  const blocks: Block[] = [];
  let open: { language: string; marks: string[]; line: number; text: string[] } | null = null;
  for (const [index, line] of markdown.split('\n').entries()) {
    if (!line.startsWith('```')) {
      open?.text.push(line);
    } else if (open) {
      blocks.push({ ...open, text: open.text.join('\n') });
      open = null;
    } else {
      const [language = '', ...marks] = line.slice(3).trim().split(/\s+/);
      open = { language, marks, line: index + 1, text: [] };
    }
  }
  if (open) throw new Error(`the fence of line ${open.line} is never closed`);
  return blocks;
}

/** The program without which the block cannot be tried. */
export function neededProgram(block: Block): string | null {
  return block.marks.find((mark) => mark.startsWith('needs:'))?.slice('needs:'.length) ?? null;
}

export type Action =
  | { readonly kind: 'run' | 'background' | 'expect' | 'none'; readonly block: Block }
  | { readonly kind: 'file' | 'elsewhere'; readonly block: Block; readonly name: string };

/** @throws Error for a shell block about which nothing is said: every command must be tried. */
export function actionOf(block: Block): Action {
  const [mark, name] = block.marks;
  if (mark === 'test') return { kind: 'run', block };
  if (mark === 'background' || mark === 'expect') return { kind: mark, block };
  if (mark === 'tested-by' && name !== undefined) return { kind: 'elsewhere', block, name };
  if (mark?.includes('.')) return { kind: 'file', block, name: mark };
  if (block.language === 'sh')
    throw new Error(`the commands of line ${block.line} are run by no test; see blocks.ts`);
  return { kind: 'none', block };
}
