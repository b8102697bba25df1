/** The hub's HTTP API as a tenant sees it. Throws an Error with the hub's own sentence when it refuses. */
export interface Api {
  readonly url: string;
  get<T>(path: string): Promise<T>;
  post<T>(path: string, body?: unknown, content_type?: string): Promise<T>;
}

const timeout_ms = 10_000;

export function openApi(url: string): Api {
  async function call<T>(method: string, path: string, init: RequestInit): Promise<T> {
    const answer = await fetch(url + path, {
      ...init,
      method,
      signal: AbortSignal.timeout(timeout_ms),
    });
    const text = await answer.text();
    if (!answer.ok) throw new Error(`${method} ${path} answered ${answer.status}: ${text}`);
    return JSON.parse(text) as T;
  }
  return {
    url,
    get: (path) => call('GET', path, {}),
    post: (path, body, content_type = 'application/json') =>
      call('POST', path, {
        ...(body !== undefined && {
          headers: { 'content-type': content_type },
          body: JSON.stringify(body),
        }),
      }),
  };
}
