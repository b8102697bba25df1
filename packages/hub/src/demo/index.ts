/** Placeholder until the demo lands in the next commit. */
export async function runDemo(_seconds: number | null): Promise<number> {
  return 1;
}
