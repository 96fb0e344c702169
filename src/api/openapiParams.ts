import { z } from 'zod';
import { sharedParams } from '../contract/params.js';
import { objectsOf } from '../contract/schemas.js';
import type { ApiVersion, JsonObject } from '../contract/versions/index.js';
import type { Route } from './route.js';

/**
 * How the document describes parameters: those of each route as JSON Schema, and their encoding in a query or
 * a form. Forms have separate components: if both shared one, generated clients would send a form where only
 * JSON can express the value.
 */

type Schema = z.core.JSONSchema.BaseSchema;
export type ParamsSchema = JsonObject & {
  readonly properties: Readonly<Record<string, Schema>>;
  readonly required: readonly string[];
};

/** The components of a version, and a function that returns the parameters of a route. */
export type PublishedSchemas = ReturnType<typeof publishedSchemas>;

export function reference(name: string): string {
  return `#/components/schemas/${name}`;
}

export const jsonName = ({ operationId }: Route) => `${operationId}_params`;
export const formName = ({ operationId }: Route) => `${operationId}_form`;

/** Builds every schema of the document: the objects of the version, and the bodies of the routes. */
export function publishedSchemas(routes: readonly Route[], version: ApiVersion) {
  const named = z.registry<{ id: string }>();
  for (const [id, schema] of Object.entries(objectsOf[version])) named.add(schema, { id });
  for (const [id, schema] of Object.entries(sharedParams)) named.add(schema, { id });
  for (const { params, operationId: id } of routes) {
    if (params !== undefined) named.add(named.has(params) ? params.extend({}) : params, { id });
  }
  const options = { io: 'input', unrepresentable: 'any', uri: reference } as const;
  const { schemas } = z.toJSONSchema(named, options);
  const published = new Map(
    Object.entries(schemas).map(([id, { $id: _id, $schema: _schema, ...schema }]) => [id, schema]),
  );
  const paramsOf = ({ method, operationId }: Route): ParamsSchema => {
    const { properties = {}, required = [], ...whole } = published.get(operationId) ?? {};
    const entries = Object.entries(properties).map(([name, of]) => {
      return [name, withoutDefault(of, method)] as const;
    });
    return { ...whole, properties: Object.fromEntries(entries), required };
  };
  const bodies = routes
    .filter(hasBody)
    .flatMap((route) => [
      [jsonName(route), paramsOf(route)] as const,
      [formName(route), formSchema(paramsOf(route))] as const,
    ]);
  const operations = new Set(routes.map(({ operationId }) => operationId));
  const objects = [...published].filter(([id]) => !operations.has(id));
  return { components: Object.fromEntries([...objects, ...bodies]), paramsOf };
}

export function hasBody({ method, params }: Route): boolean {
  return method === 'post' && params !== undefined;
}

/**
 * Moves the default of a body parameter into its description. Generated types treat a parameter with a
 * default as always present, and so would require it.
 */
function withoutDefault(schema: z.core.JSONSchema._JSONSchema, method: Route['method']): Schema {
  const { default: value, ...rest } = typeof schema === 'object' ? schema : {};
  if (value === undefined || Array.isArray(value)) return rest;
  if (method === 'get') return { ...rest, default: value };
  const original = rest.description === undefined ? '' : `${rest.description}. `;
  // The default of a number that may be sent as text is that text.
  const shown = rest.anyOf === undefined ? value : Number(value);
  return { ...rest, description: `${original}Default: ${JSON.stringify(shown)}.` };
}

/** Describes the parameters of a query. An object has its names in brackets, and a list repeats its name. */
export function queryParameters(
  { properties, required }: ParamsSchema,
  inBody?: string,
): readonly JsonObject[] {
  const inQuery = Object.entries(properties).filter(([name]) => name !== inBody);
  return inQuery.map(([name, { description, ...schema }]) => ({
    name,
    in: 'query',
    required: required.includes(name),
    // Without this example the reference invents one and sends it.
    ...(schema.type === 'object' ? { style: 'deepObject', explode: true, example: {} } : {}),
    ...(description === undefined ? {} : { description }),
    schema,
  }));
}

/**
 * Returns the schema of the same parameters in a form. OpenAPI has no notation for the items of a list of
 * objects, so a pattern describes their names.
 */
function formSchema({ properties, required, ...schema }: ParamsSchema): ParamsSchema {
  const isList = ([, { items }]: readonly [string, Schema]) =>
    typeof items === 'object' && !Array.isArray(items) && items.type === 'object';
  const all = Object.entries(properties);
  const lists = all.filter(isList).map(([name]) => name);
  const patterns = lists.map((name) => {
    const description = `One parameter of one item: \`${name}[0][…]\`.`;
    return [`^${name}\\[(0|[1-9][0-9]*)\\]\\[.+\\]$`, { description }] as const;
  });
  return {
    ...schema,
    properties: Object.fromEntries(all.filter(([name]) => !lists.includes(name))),
    required: required.filter((name) => !lists.includes(name)),
    ...(lists.length === 0 ? {} : { patternProperties: Object.fromEntries(patterns) }),
  };
}

/** Describes how a form encodes objects: with their names in brackets. */
export function formEncoding({ properties }: ParamsSchema): JsonObject {
  const objects = Object.entries(properties)
    .filter(([, { type }]) => type === 'object')
    .map(([name]) => [name, { style: 'deepObject', explode: true }] as const);
  return objects.length === 0 ? {} : { encoding: Object.fromEntries(objects) };
}
