import { z } from 'zod';
import { assertDocumented } from './document.js';

const json = z.record(z.string(), z.unknown());

export type ApiAnswer = {
  readonly status: number;
  readonly headers: Headers;
  /** The decoded body; tests parse what they look at. */
  readonly body: Readonly<Record<string, unknown>>;
};

export type RequestOptions = {
  readonly form?: Readonly<Record<string, string>>;
  readonly json?: unknown;
  readonly raw?: { readonly body: string | Uint8Array; readonly contentType?: string };
  readonly idempotencyKey?: string;
  readonly headers?: Readonly<Record<string, string>>;
};

export type ApiClient = (request: string, options?: RequestOptions) => Promise<ApiAnswer>;

/** Calls the API as an integrator would: `client('POST /v1/quotes', { form: {…} })`. */
export function createClient(apiUrl: string, apiKey: string): ApiClient {
  return async (request, options = {}) => {
    const [method = 'GET', path = '/'] = request.split(' ');
    const headers = new Headers({ authorization: `Bearer ${apiKey}`, ...options.headers });
    if (options.idempotencyKey !== undefined)
      headers.set('idempotency-key', options.idempotencyKey);
    let body: string | Uint8Array | undefined;
    if (options.form !== undefined) {
      headers.set('content-type', 'application/x-www-form-urlencoded');
      body = new URLSearchParams(options.form).toString();
    } else if (options.json !== undefined) {
      headers.set('content-type', 'application/json');
      body = JSON.stringify(options.json);
    } else if (options.raw !== undefined) {
      if (options.raw.contentType !== undefined)
        headers.set('content-type', options.raw.contentType);
      body = options.raw.body;
    }
    const init = body === undefined ? { method, headers } : { method, headers, body };
    const response = await fetch(apiUrl + path, { ...init, signal: AbortSignal.timeout(30_000) });
    const text = await response.text();
    const answer = {
      status: response.status,
      headers: response.headers,
      body: text === '' ? {} : json.parse(JSON.parse(text)),
    };
    await assertDocumented(apiUrl, request, options.json, answer);
    return answer;
  };
}

/** Reads a text member, and says which answer had none. */
export function textOf(answer: ApiAnswer, name: string): string {
  const value = answer.body[name];
  if (typeof value === 'string') return value;
  throw new Error(`No ${name} in the answer ${answer.status}: ${JSON.stringify(answer.body)}`);
}

/** Asks for a payout until it has the status; rejects after 20 s with the last answer. */
export async function untilStatus(
  client: ApiClient,
  payoutId: string,
  status: string,
): Promise<ApiAnswer> {
  const deadlineMs = Date.now() + 20_000;
  for (;;) {
    const answer = await client(`GET /v1/payouts/${payoutId}`);
    if (answer.body['status'] === status) return answer;
    if (Date.now() > deadlineMs) {
      throw new Error(`The payout is not ${status}: ${JSON.stringify(answer.body)}`);
    }
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}
