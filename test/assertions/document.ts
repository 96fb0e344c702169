import { Ajv2020 } from 'ajv/dist/2020.js';
import { z } from 'zod';
import type { ApiAnswer } from '../fixtures/client.js';

const parameter = z.looseObject({ name: z.string(), in: z.string() });

const operation = z.looseObject({
  operationId: z.string(),
  parameters: z.array(z.union([parameter, z.object({ $ref: z.string() })])),
  requestBody: z
    .object({
      content: z.record(
        z.string(),
        z
          .object({ examples: z.record(z.string(), z.object({ value: z.unknown() })).optional() })
          .loose(),
      ),
    })
    .loose()
    .optional(),
  responses: z.record(
    z.string(),
    z.object({
      headers: z.record(z.string(), z.object({ $ref: z.string() })),
      content: z.record(z.string(), z.unknown()),
      'x-error-codes': z.array(z.string()).optional(),
    }),
  ),
});
export type Operation = z.infer<typeof operation>;

const openapi = z.looseObject({
  info: z.looseObject({ version: z.string() }),
  paths: z.record(z.string(), z.record(z.string(), operation)),
  webhooks: z.record(z.string(), z.unknown()),
  components: z.looseObject({ schemas: z.record(z.string(), z.unknown()) }),
});

/** The /openapi.json of one version, with a function to check answers against it. */
export type Document = z.infer<typeof openapi> & {
  /**
   * Describes how a value violates the schema at a JSON pointer in the document; undefined if it is valid.
   */
  readonly faultOf: (pointer: string, value: unknown) => string | undefined;
};

/** Reads the document of a version from the API; a test that needs the headers must fetch it directly. */
export async function readDocument(apiUrl: string, version: string): Promise<Document> {
  const url = `${apiUrl}/openapi.json?version=${version}`;
  const response = await fetch(url, { signal: AbortSignal.timeout(30_000) });
  const document = openapi.parse(await response.json());
  const ajv = new Ajv2020({ strict: false, allErrors: true, validateFormats: false });
  ajv.addSchema({ ...document, components: closed(document.components) }, 'openapi');
  return {
    ...document,
    faultOf: (pointer, value) => {
      const validate = ajv.getSchema(`openapi#${pointer}`);
      if (validate === undefined) return `there is no ${pointer}`;
      return validate(value) === true ? undefined : ajv.errorsText(validate.errors);
    },
  };
}

/**
 * Forbids additional members in every object schema. The document allows them, because integrators
 * must tolerate new members; but a member that tests see and the document lacks has been forgotten.
 */
function closed(schema: unknown): unknown {
  if (Array.isArray(schema)) return schema.map(closed);
  if (typeof schema !== 'object' || schema === null) return schema;
  const copy = Object.fromEntries(Object.entries(schema).map(([name, of]) => [name, closed(of)]));
  const isOpen = copy['type'] === 'object' && 'properties' in copy;
  return isOpen && !('additionalProperties' in copy)
    ? { ...copy, additionalProperties: false }
    : copy;
}

/** One document per version: all APIs of a test run publish the same. */
const documents = new Map<string, Promise<Document>>();

/** Throws when an answer, or an accepted JSON body, does not match /openapi.json. */
export async function assertDocumented(
  apiUrl: string,
  request: string,
  sent: unknown,
  answer: ApiAnswer,
): Promise<void> {
  const version = answer.headers.get('corridor-version');
  if (version === null) {
    const shown = JSON.stringify(answer.body).slice(0, 200);
    throw new Error(`${request} answered ${answer.status} without a version: ${shown}`);
  }
  const known = documents.get(version) ?? readDocument(apiUrl, version);
  documents.set(version, known);
  // Not cached if the API was unreachable, so that the next caller fetches it again.
  known.catch(() => documents.delete(version));
  const faults = [
    ...faultsOf(await known, request, answer),
    ...(answer.status < 300 ? sentFaults(await known, request, sent) : []),
    ...(answer.status < 300 ? queryFaults(await known, request) : []),
  ];
  if (faults.length === 0) return;
  const shown = JSON.stringify(answer.body).slice(0, 2_000);
  throw new Error(
    `${request} answered ${answer.status}, not as documented: ${faults.join('; ')}\n${shown}`,
  );
}

/** Responses outside any operation, for unknown routes or methods, must be problems. */
const problemPointer = '/components/schemas/problem';

function faultsOf(document: Document, request: string, answer: ApiAnswer): readonly string[] {
  const [method = '', url = ''] = request.split(' ');
  const found = findOperation(document, method, url);
  if (found === undefined) {
    if (!url.startsWith('/v1/')) return [];
    return [document.faultOf(problemPointer, answer.body)].filter((fault) => fault !== undefined);
  }
  const response = found.operation.responses[answer.status];
  if (response === undefined) return [`the status ${answer.status} is not announced`];
  const type = answer.headers.get('content-type')?.split(';')[0] ?? '';
  if (!(type in response.content)) return [`the content type ${type} is not announced`];
  const pointer = [found.pointer, 'responses', answer.status, 'content', escaped(type), 'schema'];
  const fault = document.faultOf(pointer.join('/'), answer.body);
  const { 'x-error-codes': codes = [] } = response;
  const code = String(answer.body['code']);
  if (answer.status >= 400 && !codes.includes(code)) return [`the code ${code} is not announced`];
  return [...(fault === undefined ? [] : [fault]), ...headerFaults(document, response, answer)];
}

/** An accepted body must be one that a generated client could send. */
function sentFaults(document: Document, request: string, sent: unknown): readonly string[] {
  const [method = '', url = ''] = request.split(' ');
  const found = findOperation(document, method, url);
  if (found?.operation.requestBody === undefined || sent === undefined) return [];
  const pointer = `${found.pointer}/requestBody/content/application~1json/schema`;
  const fault = document.faultOf(pointer, sent);
  return fault === undefined ? [] : [`a body was taken that is not announced: ${fault}`];
}

/** An accepted query must have no undocumented names and all required ones. */
function queryFaults(document: Document, request: string): readonly string[] {
  const [method = '', url = ''] = request.split(' ');
  const { operation } = findOperation(document, method, url) ?? {};
  const announced = (operation?.parameters ?? []).flatMap((one) =>
    'in' in one && one.in === 'query' ? [one] : [],
  );
  const rootOf = (name: string) => name.split('[')[0] ?? '';
  const known = announced.map(({ name }) => rootOf(name));
  const sent = [...new URL(url, 'http://localhost').searchParams.keys()].map(rootOf);
  if (operation === undefined) return [];
  return [
    ...sent.filter((name) => !known.includes(name)).map((name) => `${name} is not announced`),
    ...announced
      .filter(({ required, name }) => required === true && !sent.includes(name))
      .map(({ name }) => `${name} was not needed`),
  ];
}

const everyAnswer = ['Request-Id', 'Corridor-Version'];
const ourHeaders = [
  ...everyAnswer,
  'Idempotent-Replayed',
  'Location',
  'Preference-Applied',
  'Retry-After',
];

function headerFaults(
  document: Document,
  { headers }: Operation['responses'][string],
  answer: ApiAnswer,
): readonly string[] {
  return ourHeaders.flatMap((name) => {
    const value = answer.headers.get(name);
    if (value === null) return everyAnswer.includes(name) ? [`there is no ${name}`] : [];
    if (!(name in headers)) return [`the header ${name} is not announced`];
    const fault = document.faultOf(`/components/headers/${name}/schema`, value);
    return fault === undefined ? [] : [`the header ${name}: ${fault}`];
  });
}

/** Finds the operation of a request and its JSON pointer in the document. */
function findOperation(document: Document, method: string, url: string) {
  const { pathname } = new URL(url, 'http://localhost');
  for (const [template, operations] of Object.entries(document.paths)) {
    const pattern = new RegExp(`^${template.replaceAll(/\{\w+\}/g, '[^/]+')}$`);
    const found = operations[method.toLowerCase()];
    if (found === undefined || !pattern.test(pathname)) continue;
    return { operation: found, pointer: `/paths/${escaped(template)}/${method.toLowerCase()}` };
  }
  return undefined;
}

/** Escapes a name for a JSON pointer (RFC 6901) in the fragment of a URI. */
function escaped(name: string): string {
  return encodeURIComponent(name.replaceAll('~', '~0').replaceAll('/', '~1'));
}
