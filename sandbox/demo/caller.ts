import type { z } from 'zod';

/** A request body, either form fields as in the specification's examples, or JSON. */
type Sent = URLSearchParams | { readonly json: object };

export type Call = ReturnType<typeof caller>;

/** Timeout of a request: the demo fails if the API takes longer. */
const answerLimitMs = 10_000;

/** Calls the API as an integrator would. An error response is thrown with its text. */
export function caller(apiUrl: string, apiKey: string) {
  return async <T>(
    request: string,
    shape: z.ZodType<T>,
    sent?: Sent,
    idempotencyKey?: string,
  ): Promise<T> => {
    const [method = 'GET', path = '/'] = request.split(' ');
    const isJson = sent !== undefined && 'json' in sent;
    const response = await fetch(apiUrl + path, {
      method,
      headers: {
        authorization: `Bearer ${apiKey}`,
        ...(isJson ? { 'content-type': 'application/json' } : {}),
        ...(idempotencyKey === undefined ? {} : { 'idempotency-key': idempotencyKey }),
      },
      ...(sent === undefined ? {} : { body: isJson ? JSON.stringify(sent.json) : sent }),
      signal: AbortSignal.timeout(answerLimitMs),
    });
    const text = await response.text();
    if (!response.ok) throw new Error(`${request} got the response ${response.status}: ${text}`);
    return shape.parse(JSON.parse(text));
  };
}
