/**
 * Selects the parts of the OpenAPI document that the clients have types for: the objects and each
 * operation's parameters. Paths, responses and forms are left out, because the clients know the routes.
 */

/** Typed as strings: programs keep currencies and countries in variables, which a union would reject. */
const openTexts = ['currency', 'country'];

/** Constraints and examples, which are left out: the service validates requests and may widen responses. */
const checkedByTheService = new Set([
  ...['pattern', 'minimum', 'maximum', 'minLength', 'maxLength', 'minItems', 'maxItems'],
  ...['maxProperties', 'uniqueItems', 'propertyNames', 'examples', 'example', 'default'],
]);

/** Returns the document from which the types are generated. */
export function typesDocument({ openapi, info, paths, components }) {
  const { schemas: all } = components;
  const schemas = {};
  for (const [name, schema] of Object.entries(all)) {
    if (name.endsWith('_form') || name === 'amount_param') continue;
    schemas[name] = /(^|_)currency_param$/.test(name) ? openText(schema) : plain(schema);
  }
  schemas.amount_param = plain(all.amount_param);
  for (const operation of Object.values(paths).flatMap(Object.values)) {
    const query = (operation.parameters ?? []).filter((param) => param.in === 'query');
    if (query.length > 0 && schemas[`${operation.operationId}_params`] === undefined) {
      schemas[`${operation.operationId}_params`] = queryObject(query);
    }
  }
  nameParts(schemas);
  return { openapi, info, paths: {}, components: { schemas } };
}

function queryObject(query) {
  const properties = query.map(({ name, description, schema }) => [
    name.replace('[]', ''),
    { ...oneOrSeveral(name, plain(schema, name)), ...(description === undefined ? {} : { description }) },
  ]);
  const required = query.filter((param) => param.required).map(({ name }) => name);
  return { type: 'object', properties: Object.fromEntries(properties), required };
}

/** A single status may be given without a list, and then needs no brackets. */
function oneOrSeveral(name, schema) {
  return name === 'status' && schema.type === 'array' ? { anyOf: [schema.items, schema] } : schema;
}

/** Moves parts of objects that programs need by name into schemas of their own. */
function nameParts(schemas) {
  const hoist = (name, owner, property, isList = false) => {
    const { properties } = schemas[owner];
    schemas[name] ??= isList ? properties[property].items : properties[property];
    const reference = { $ref: `#/components/schemas/${name}` };
    properties[property] = isList ? { ...properties[property], items: reference } : reference;
  };
  hoist('problem_error', 'problem', 'errors', true);
  hoist('preview_refusal', 'batch_preview', 'refusals', true);
  hoist('requirement_field', 'beneficiary_requirements', 'fields', true);
  const { alternatives } = schemas.beneficiary_requirements.properties;
  alternatives.items.properties.fields.items = { $ref: '#/components/schemas/requirement_field' };
  hoist('batch_item_params', 'createBatch_params', 'payouts', true);
  for (const owner of ['problem', 'problem_error', 'preview_refusal']) {
    hoist('problem_code', owner, 'code');
  }
  for (const owner of ['payout', 'expanded_payout']) {
    hoist('status_change', owner, 'status_history', true);
  }
  for (const [name, { properties = {} }] of Object.entries(schemas)) {
    if (/^list\w+_params$/.test(name) && 'created' in properties) {
      hoist('created_filter', name, 'created');
    }
  }
}

function openText({ description }) {
  return { type: 'string', ...(description === undefined ? {} : { description }) };
}

/** Returns a schema without the constraints that only the service checks, and with `openTexts` as strings. */
function plain(schema, name = '') {
  if (Array.isArray(schema)) return schema.map((item) => plain(item));
  if (typeof schema !== 'object' || schema === null) return schema;
  if (openTexts.includes(name) && 'enum' in schema) return openText(schema);
  const entries = Object.entries(schema)
    .filter(([key]) => !checkedByTheService.has(key))
    .map(([key, value]) => [key, key === 'properties' ? plainProperties(value) : plain(value)]);
  return Object.fromEntries(entries);
}

function plainProperties(properties) {
  return Object.fromEntries(
    Object.entries(properties).map(([name, schema]) => [name, plain(schema, name)]),
  );
}

/**
 * Returns the document for models that validate what they read. They accept values added to enumerations
 * later and the API versions of older webhooks, and null occurs only once in a union.
 */
export function tolerantDocument(document) {
  const { schemas } = document.components;
  const isParams = (name) => /_(params|param|filter)$/.test(name);
  const tolerant = Object.entries(schemas).map(([name, schema]) => [
    pascal(name),
    isParams(name) ? opened(referenced(schema)) : widened(referenced(schema)),
  ]);
  return { ...document, components: { schemas: Object.fromEntries(tolerant) } };
}

/** Converts `createQuote_params` to CreateQuoteParams, explicitly rather than by the generator's rules. */
function pascal(name) {
  return name.replace(/(^|_)(\w)/g, (_all, _mark, letter) => letter.toUpperCase());
}

function mapSchema(schema, change) {
  if (Array.isArray(schema)) return schema.map((item) => mapSchema(item, change));
  if (typeof schema !== 'object' || schema === null) return schema;
  const inner = Object.entries(schema).map(([key, value]) => [key, mapSchema(value, change)]);
  return change(Object.fromEntries(inner));
}

function referenced(schema) {
  return mapSchema(schema, (one) =>
    typeof one.$ref === 'string'
      ? { ...one, $ref: one.$ref.replace(/[^/]+$/, (name) => pascal(name)) }
      : one,
  );
}

/**
 * Allows additional properties, because type checkers do not agree yet on how a TypedDict is closed. Removes
 * `expand`, which is a separate argument because the type of the response depends on it.
 */
function opened(schema) {
  const { expand: _own, ...properties } = schema.properties ?? {};
  const whole = schema.properties === undefined ? schema : { ...schema, properties };
  return mapSchema(whole, (one) => {
    if (one.additionalProperties !== false) return one;
    const { additionalProperties: _closed, ...open } = one;
    return open;
  });
}

function widened(schema) {
  return mapSchema(schema, (one) => {
    if (/^\d{4}-/.test(one.const)) return { type: 'string' };
    if (Array.isArray(one.anyOf)) {
      const members = one.anyOf.flatMap((member) => member.anyOf ?? [member]);
      const bare = members.map(({ description: _said, ...member }) => member);
      const [said] = members.map(({ description }) => description).filter(Boolean);
      return { ...(said === undefined ? {} : { description: said }), ...one, anyOf: bare };
    }
    if (!('enum' in one)) return one;
    const { enum: values, description, type: _type } = one;
    const union = { anyOf: [{ type: 'string', enum: values }, { type: 'string' }] };
    return description === undefined ? union : { description, ...union };
  });
}
