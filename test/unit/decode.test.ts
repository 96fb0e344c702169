import { Session } from 'node:inspector/promises';
import fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { z } from 'zod';
import { formatOf, isUndecoded } from '../../src/api/decode.js';
import {
  type DecodedObject,
  flatten,
  maxBodyBytes,
  maxDepth,
  maxFields,
  maxNameLength,
  maxNames,
  maxProblems,
  maxValueLength,
  paramName,
} from '../../src/api/decoded.js';
import { validate } from '../../src/api/route.js';
import { batchParams, DecodedNumber, payoutParams } from '../../src/contract/params.js';
import type { Refusal } from '../../src/domain/refusal.js';
import { decodeBody } from '../fixtures/decodeBody.js';

const formType = 'application/x-www-form-urlencoded';
const jsonType = 'application/json; charset=utf-8';

type Result = DecodedObject | readonly Refusal[];

function form(body: string | Buffer): Result {
  return decodeBody(Buffer.from(body), formType);
}

function json(body: string): Result {
  return decodeBody(Buffer.from(body), jsonType);
}

const inspector = new Session();
inspector.connect();

// V8 only counts code compiled after this, so it must come before the first test.
beforeAll(async () => {
  await inspector.post('Profiler.enable');
  await inspector.post('Profiler.startPreciseCoverage', { callCount: true, detailed: true });
});

afterAll(async () => {
  await inspector.post('Profiler.stopPreciseCoverage');
  inspector.disconnect();
});

/** The refusals as "code param", or the decoded value if there are none. */
function refused(result: Result): unknown {
  if (!isUndecoded(result)) return result;
  return result.map(({ code, param }) => (param === undefined ? code : `${code} ${param}`));
}

function pairsOf(result: Result): unknown {
  return isUndecoded(result) ? result : flatten(result);
}

describe('a form body', () => {
  it('decodes nested names, percent-encoded brackets, appended items and spaces', () => {
    const decoded = form(
      'payouts[1][amount]=2&payouts%5B0%5D%5Bamount%5D=1&events[]=a&events[]=b+c&name=J%C3%B6rg&flag',
    );
    expect(pairsOf(decoded)).toEqual([
      ['events[0]', 'a'],
      ['events[1]', 'b c'],
      ['flag', ''],
      ['name', 'Jörg'],
      ['payouts[0][amount]', '1'],
      ['payouts[1][amount]', '2'],
    ]);
  });

  it('keeps the bytes of unescaped UTF-8, and everything after the first equals sign', () => {
    expect(pairsOf(form('name=Jörg=1&&a=%3D'))).toEqual([
      ['a', '='],
      ['name', 'Jörg=1'],
    ]);
  });

  it.each([
    ['a scalar sent twice', 'a[b]=1&a[b]=1', 'a[b]'],
    ['a scalar and an object', 'a=1&a[b]=2', 'a[b]'],
    ['an object and a scalar', 'a[b]=2&a=1', 'a'],
    ['a list and an object', 'a[0]=2&a[b]=1', 'a[b]'],
    ['a numbered and an appended list', 'a[0]=2&a[]=1', 'a[]'],
    ['a gap in a list', 'a[0][x]=1&a[2][x]=1', 'a[1]'],
    ['a giant index', 'a[4294967295]=1', 'a[0]'],
    ['an index with leading zeros', 'a[00]=1', 'a[00]'],
    ['an empty index before another level', 'a[][b]=1', 'a[][b]'],
    ['an empty name', '=1', ''],
    ['a bracket that is not closed', 'a[b=1', 'a[b'],
    ['a bracket that is not opened', 'a]=1', 'a]'],
    ['text after a bracket', 'a[b]c=1', 'a[b]c'],
    ['text between brackets', 'a[b]c[d]=1', 'a[b]c[d]'],
    ['a bad escape in a value', 'a[b]=%zz', 'a[b]'],
    ['a cut escape at the end', 'a=%4', 'a'],
    ['a bad escape in a name', 'a%=1', 'a%'],
    ['invalid UTF-8', 'a=%ff', 'a'],
    ['overlong UTF-8', 'a=%c0%80', 'a'],
    ['an encoded surrogate', 'a=%ed%a0%80', 'a'],
    ['U+0000', 'a=%00', 'a'],
    ['__proto__', '__proto__[x]=1', '__proto__[x]'],
    ['a nested constructor', 'a[constructor][prototype]=1', 'a[constructor][prototype]'],
  ])('refuses by name: %s', (_, body, param) => {
    expect(refused(form(body))).toEqual([`parameter_invalid ${param}`]);
  });

  const params = z.strictObject({
    metadata: z.record(z.string(), z.string()).optional(),
    events: z.array(z.string()).default([]),
    payouts: z.array(z.strictObject({ metadata: z.record(z.string(), z.string()) })).optional(),
    name: z.string().optional(),
  });
  const typed = (body: string) => decodeBody(Buffer.from(body), formType, false, { params });

  it('reads a repeated name as a list where the route accepts one', () => {
    expect(typed('events=a&events=b')).toEqual({ events: ['a', 'b'] });
    expect(typed('events=a')).toEqual({ events: ['a'] });
    expect(typed('events=a&events[]=b')).toEqual({ events: ['a', 'b'] });
    expect(refused(typed('events=a&events[0]=b'))).toEqual(['parameter_invalid events[0]']);
    expect(refused(typed('name=a&name=b'))).toEqual(['parameter_invalid name']);
  });

  it('reads a number as a name where the route accepts any name', () => {
    expect(typed('metadata[0]=a&metadata[x]=b&metadata[007]=c')).toEqual({
      metadata: { 0: 'a', x: 'b', '007': 'c' },
    });
    expect(typed('payouts[1][metadata][0]=b&payouts[0][metadata][1]=a')).toEqual({
      payouts: [{ metadata: { 1: 'a' } }, { metadata: { 0: 'b' } }],
    });
    expect(typed('metadata[]=a')).toEqual({ metadata: ['a'] });
    expect(refused(typed('payouts[00][metadata][0]=a'))).toHaveLength(1);
  });

  it('refuses a raw byte that is not UTF-8 by the name of its parameter', () => {
    const body = Buffer.concat([Buffer.from('a=1&b='), Buffer.from([0xff]), Buffer.from('&c=1')]);
    expect(refused(form(body))).toEqual(['parameter_invalid b']);
  });

  it('names every refused parameter, up to the maximum that a response lists', () => {
    expect(refused(form('a=%zz&b=1&c=%zz'))).toEqual([
      'parameter_invalid a',
      'parameter_invalid c',
    ]);
    expect(refused(form('p[0][a]=1&p[1][a]=%zz&p[2][a]=1'))).toEqual(['parameter_invalid p[1][a]']);
    expect(refused(form('a=%zz&'.repeat(maxProblems + 1)))).toHaveLength(maxProblems);
  });
});

describe('a JSON body', () => {
  it('keeps the text of every number', () => {
    const decoded = json(
      '{"a":[1.0,1e3,-0,1000000000000000000],"b":true,"c":null,"d":"\\u00e9\\n"}',
    );
    expect(pairsOf(decoded)).toEqual([
      ['a[0]', '1.0'],
      ['a[1]', '1e3'],
      ['a[2]', '-0'],
      ['a[3]', '1000000000000000000'],
      ['b', 'true'],
      ['c', ''],
      ['d', 'é\n'],
    ]);
  });

  it.each([
    ['a name sent twice', '{"a":{"b":1,"b":2}}', 'a[b]'],
    ['a name sent twice with one value', '{"p":[{"x":1},{"b":1,"b":1}]}', 'p[1][b]'],
    ['a name sent twice in two spellings', '{"b":1,"\\u0062":1}', 'b'],
    ['__proto__', '{"a":[{"__proto__":{"x":1}}]}', 'a[0][__proto__]'],
    ['constructor', '{"constructor":1}', 'constructor'],
    ['a bracket in a name', '{"a[b]":1}', 'a[b]'],
    ['an empty name', '{"":1}', ''],
    ['a huge number', `{"a":[1,${'9'.repeat(41)}]}`, 'a[1]'],
    ['U+0000', '{"a":"\\u0000"}', 'a'],
    ['half a surrogate pair', '{"a":"\\ud800"}', 'a'],
  ])('refuses by name: %s', (_, body, param) => {
    expect(refused(json(body))).toEqual([`parameter_invalid ${param}`]);
  });

  it.each(['1', '"a"', '[]', 'null', ' ', '{"a":1}x', '{"a":1,}', "{'a':1}", '{"a":01}', '{"a"'])(
    'refuses %s as a whole',
    (body) => {
      expect(refused(json(body))).toEqual(['body_malformed']);
    },
  );

  it('reports where the text stops being valid JSON', () => {
    expect(json('{"a":1 "b":2}')).toMatchObject([{ expected: "JSON with ',' or '}' at column 8" }]);
  });

  it('may begin with a byte order mark', () => {
    expect(json('\ufeff{"a":"b"}')).toEqual({ a: 'b' });
    expect(json('\ufeff[]')).toMatchObject([{ expected: expect.stringContaining('column 1') }]);
    expect(refused(json('\ufeff\ufeff{"a":"b"}'))).toEqual(['body_malformed']);
  });

  it('that creates an object may have null for an optional parameter', () => {
    const path = '/v1/some';
    const body = Buffer.from(
      '{"quote":null,"beneficiary":null,"colour":null,"metadata":{"a":null},"reference":"July"}',
    );
    const kept = { beneficiary: null, colour: null, metadata: { a: null }, reference: 'July' };
    expect(decodeBody(body, jsonType, false, { params: payoutParams, path })).toEqual(kept);
    expect(decodeBody(body, jsonType, false, { params: payoutParams })).toEqual({
      ...kept,
      quote: null,
    });
    const batch = Buffer.from('{"payouts":[{"reference":null,"amount":1}],"mode":null}');
    const items = { payouts: [{ amount: new DecodedNumber('1') }] };
    expect(decodeBody(batch, jsonType, true, { params: batchParams, path })).toEqual(items);
    const line = Buffer.from('{"reference":null,"amount":1}');
    expect(
      decodeBody(line, 'application/x-ndjson', true, { params: batchParams, path }),
    ).toMatchObject(items);
    for (const twice of ['"July","reference":null', 'null,"reference":"July"']) {
      const sent = Buffer.from(`{"reference":${twice}}`);
      expect(
        refused(decodeBody(sent, jsonType, false, { params: payoutParams, path })),
      ).toHaveLength(1);
    }
  });

  it('refuses bytes that are not UTF-8', () => {
    const body = Buffer.concat([Buffer.from('{"a":"'), Buffer.from([0xff]), Buffer.from('"}')]);
    expect(refused(decodeBody(body, jsonType))).toEqual(['body_malformed']);
  });

  it('accepts exactly the objects that JSON.parse accepts', () => {
    const edits = fc.array(
      fc.tuple(
        fc.nat(),
        fc.constantFrom(
          '',
          '{',
          '}',
          '[',
          ']',
          ',',
          ':',
          '"',
          '\\',
          '0',
          '-',
          '.',
          'e',
          ' ',
          '\n',
          't',
        ),
      ),
      { maxLength: 3 },
    );
    fc.assert(
      fc.property(fc.json({ maxDepth: 4 }), fc.boolean(), edits, (value, spaced, changes) => {
        const text = changes.reduce(
          (all, [at, put]) => {
            const cut = at % (all.length + 1);
            return all.slice(0, cut) + put + all.slice(cut + 1);
          },
          JSON.stringify({ a: JSON.parse(value) }, null, spaced ? 2 : 0),
        );
        const result = refused(json(text));
        const malformed = Array.isArray(result) && result.includes('body_malformed');
        expect(malformed, text).toBe(!isJsonObject(text));
      }),
      { numRuns: 2_000 },
    );
  });
});

function isJsonObject(text: string): boolean {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === 'object' && value !== null && !Array.isArray(value);
  } catch {
    return false;
  }
}

describe('both styles', () => {
  type Tree = string | readonly Tree[] | { readonly [name: string]: Tree };

  // A form cannot express an empty list or object, and treats a numeric name as an index.
  const name = fc
    .string({ unit: 'binary', minLength: 1, maxLength: 8 })
    .filter((text) => !/[[\]\0]|^\d+$|^(__proto__|constructor|prototype)$/.test(text));
  const text = fc
    .string({ unit: 'binary', maxLength: 12 })
    .filter((value) => !value.includes('\0'));
  const { tree } = fc.letrec<{ tree: Tree; object: { readonly [name: string]: Tree } }>((tie) => ({
    tree: fc.oneof(
      { maxDepth: maxDepth - 2, depthSize: 'small' },
      text,
      fc.array(tie('tree'), { minLength: 1, maxLength: 4 }),
      tie('object'),
    ),
    object: fc.dictionary(name, tie('tree'), { minKeys: 1, maxKeys: 4, noNullPrototype: true }),
  }));
  const root = fc.dictionary(name, tree, { maxKeys: 4, noNullPrototype: true });

  function formPairs(path: string, value: Tree): string[] {
    if (typeof value === 'string')
      return [`${encodeURIComponent(path)}=${encodeURIComponent(value)}`];
    return Object.entries(value).flatMap(([key, item]) => formPairs(`${path}[${key}]`, item));
  }

  it('decode the same values to the same parameters, in any order of the form', () => {
    fc.assert(
      fc.property(root, fc.nat(), (values, turn) => {
        const pairs = Object.entries(values).flatMap(([key, value]) => formPairs(key, value));
        const cut = turn % (pairs.length + 1);
        const turned = [...pairs.slice(cut), ...pairs.slice(0, cut)].join('&');
        const fromJson = json(JSON.stringify(values));
        expect(isUndecoded(fromJson)).toBe(false);
        expect(form(turned)).toEqual(fromJson);
        expect(pairsOf(form(turned))).toEqual(pairsOf(fromJson));
      }),
    );
  });

  it('give the same pairs for the same scalars', () => {
    expect(pairsOf(form('b=true&a=1000&c='))).toEqual(
      pairsOf(json('{"a":1000,"b":true,"c":null}')),
    );
  });

  it('read an empty body as no parameters', () => {
    expect(decodeBody(Buffer.alloc(0), '')).toEqual({});
    expect(form('')).toEqual({});
    expect(json('')).toEqual({});
  });

  it('decode to objects that have no prototype and that zod validates', () => {
    const decoded = json('{"a":{"toString":1},"l":["x"]}');
    const schema = z.strictObject({
      a: z.object({ toString: z.instanceof(DecodedNumber) }),
      l: z.array(z.string()),
    });
    expect(Object.getPrototypeOf(decoded)).toBeNull();
    expect(schema.parse(decoded).a.toString.text).toBe('1');
    const issues = schema.safeParse(json('{"a":{"toString":"x"},"l":["x",2]}')).error?.issues ?? [];
    expect(issues.map((issue) => paramName(issue.path))).toEqual(['a[toString]', 'l[1]']);
  });
});

describe('the caps', () => {
  const long = 'n'.repeat(maxNameLength);
  const levels = Array.from({ length: maxDepth - 1 }, () => '[x]').join('');

  function nested(depth: number): string {
    return `${'{"x":'.repeat(depth)}1${'}'.repeat(depth)}`;
  }

  it('are inclusive', () => {
    expect(isUndecoded(form(`${long}=${'v'.repeat(maxValueLength)}`))).toBe(false);
    expect(isUndecoded(json(`{"${long}":"${'v'.repeat(maxValueLength)}"}`))).toBe(false);
    expect(isUndecoded(form(`x${levels}=1`))).toBe(false);
    expect(isUndecoded(json(nested(maxDepth)))).toBe(false);
    expect(
      isUndecoded(form(Array.from({ length: maxFields }, (_, i) => `a[${i}]=1`).join('&'))),
    ).toBe(false);
    expect(isUndecoded(json(`{"a":[${'1,'.repeat(maxFields - 1)}1]}`))).toBe(false);
  });

  it('refuse a name, a value and a depth that are too large', () => {
    expect(refused(form(`a${long}=1`))).toEqual([`parameter_invalid a${long}`]);
    expect(refused(json(`{"a${long}":1}`))).toEqual([`parameter_invalid a${long}`]);
    expect(refused(form(`a=${'v'.repeat(maxValueLength + 1)}`))).toEqual(['parameter_invalid a']);
    expect(refused(json(`{"a":"${'v'.repeat(maxValueLength + 1)}"}`))).toEqual([
      'parameter_invalid a',
    ]);
    expect(refused(form(`x${levels}[x]=1`))).toEqual([`parameter_invalid x${levels}[x]`]);
    expect(refused(json(nested(maxDepth + 1)))).toEqual(['body_malformed']);
  });

  const names = (count: number) => Array.from({ length: count }, (_, i) => `n${i}`);
  const asJson = (count: number) =>
    `{${names(count)
      .map((name) => `"${name}":1`)
      .join(',')}}`;

  it('refuse too many names in one object, at any depth', () => {
    const full = maxNames;
    expect(isUndecoded(form(names(full).join('&')))).toBe(false);
    expect(isUndecoded(json(asJson(full)))).toBe(false);
    expect(form(names(100_000).join('&'))).toMatchObject([
      {
        code: 'parameter_invalid',
        param: `n${full}`,
        expected: `left out: an object has at most ${full} names`,
      },
    ]);
    expect(json(asJson(100_000))).toMatchObject([
      {
        code: 'body_malformed',
        expected: expect.stringContaining(`at most ${full} names in an object`),
      },
    ]);
    const below = names(full + 1).map((name) => `a[${name}]=1&b[0][${name}]=1`);
    expect(refused(form(below.join('&')))).toEqual([
      `parameter_invalid a[n${full}]`,
      `parameter_invalid b[0][n${full}]`,
    ]);
    const branches = names(full + 1).map((name) => `${name}[x]=1`);
    expect(refused(form(branches.join('&')))).toEqual([`parameter_invalid n${full}`]);
    expect(refused(json(`{"a":[{"b":${asJson(full + 1)}}]}`))).toEqual(['body_malformed']);
    const ndjson = decodeBody(Buffer.from(`{}\n${asJson(full + 1)}`), 'application/x-ndjson', true);
    expect(refused(ndjson)).toEqual(['body_malformed payouts[1]']);
    // Items of a list do not count as names.
    expect(
      isUndecoded(
        form(
          names(500)
            .map((_, i) => `a[${i}]=1`)
            .join('&'),
        ),
      ),
    ).toBe(false);
  });

  it('refuse too many parameters and too many bytes', () => {
    expect(refused(form('a&'.repeat(maxFields)))).toEqual(['body_too_large']);
    expect(refused(json(`{"a":[${'1,'.repeat(maxFields)}1]}`))).toEqual(['body_too_large']);
    expect(refused(json(`{"a":[${'{},'.repeat(maxFields)}[]]}`))).toEqual(['body_too_large']);
    expect(refused(decodeBody(Buffer.alloc(maxBodyBytes + 1, 97), formType))).toEqual([
      'body_too_large',
    ]);
  });

  it('withstand bodies made to exhaust the stack or the memory', () => {
    const size = maxBodyBytes - 8;
    expect(refused(json(`{"a":${'['.repeat(size)}`))).toEqual(['body_malformed']);
    expect(refused(json(`{"a":${'9'.repeat(size)}}`))).toEqual(['parameter_invalid a']);
    expect(refused(json(`{"a":"${'\\n'.repeat(size / 2 - 2)}"}`))).toEqual(['parameter_invalid a']);
    expect(refused(form(`a${'[x]'.repeat(size / 3)}=1`))).toEqual([
      expect.stringMatching(/^parameter_invalid a\[x\]/),
    ]);
    expect(form(`${'n'.repeat(size)}=1`)).toMatchObject([
      { param: expect.stringMatching(/^n{200,2000}$/) },
    ]);
  });
});

describe('the work of decoding', () => {
  /** The number of times that blocks of the decoder ran for one body, as counted by V8. */
  async function steps(body: string, contentType: string): Promise<number> {
    // Taking the counts also resets them to zero.
    await inspector.post('Profiler.takePreciseCoverage');
    const result = decodeBody(Buffer.from(body), contentType, true);
    const { result: scripts } = await inspector.post('Profiler.takePreciseCoverage');
    expect(isUndecoded(result)).toBe(false);
    return scripts
      .filter(({ url }) => /src\/api\/(decoded?|(form|json|csv)Body|csvRows)\.ts/.test(url))
      .flatMap(({ functions }) => functions)
      .flatMap(({ ranges }) => ranges)
      .reduce((sum, { count }) => sum + count, 0);
  }

  /** The number of calls of the decoder's functions for one body. */
  async function calls(body: string, contentType: string): Promise<number> {
    await inspector.post('Profiler.takePreciseCoverage');
    decodeBody(Buffer.from(body), contentType, true);
    const { result: scripts } = await inspector.post('Profiler.takePreciseCoverage');
    return scripts
      .filter(({ url }) => /src\/api\/(decoded?|formBody|csvBody|csvRows)\.ts/.test(url))
      .flatMap(({ functions }) => functions)
      .reduce((sum, { ranges: [whole] }) => sum + (whole?.count ?? 0), 0);
  }

  const cells = (count: number) => ','.repeat(count - 1);
  it.each([
    ['characters of a text', (count: number) => `a=${'é'.repeat(count)}`, formType],
    ['escapes of a text', (count: number) => `a=${'%C3%A9'.repeat(count)}`, formType],
    ['cells of a header', cells, 'text/csv'],
    ['cells of a row', (count: number) => `a\n${cells(count)}`, 'text/csv'],
  ])('does not call a function for each of the %s', async (_, bodyOf, contentType) => {
    expect(await calls(bodyOf(200_000), contentType)).toBeLessThan(1_000);
  });

  it('for unknown names is limited before it begins', async () => {
    const compared = async (count: number) => {
      const sent = Object.fromEntries(Array.from({ length: count }, (_, i) => [`amuont${i}`, '1']));
      await inspector.post('Profiler.takePreciseCoverage');
      const validated = validate(payoutParams, sent);
      const { result: scripts } = await inspector.post('Profiler.takePreciseCoverage');
      expect('refusals' in validated && validated.refusals.length).toBeLessThanOrEqual(maxProblems);
      return scripts
        .filter(({ url }) => url.includes('src/api/nearestName.ts'))
        .flatMap(({ functions }) => functions)
        .flatMap(({ ranges }) => ranges)
        .reduce((sum, { count: times }) => sum + times, 0);
    };
    const few = await compared(100);
    expect(few).toBeGreaterThan(100);
    expect(await compared(10_000)).toBeLessThan(1.5 * few);
  });

  const formOf = (items: number) =>
    Array.from({ length: items }, (_, i) => `p%5B${items - 1 - i}%5D[amount]=1`).join('&');
  const jsonOf = (items: number) =>
    `{"p":[${Array.from({ length: items }, () => '{"amount": 1000, "name":"x"}').join(',')}]}`;
  const ndjsonOf = (items: number) => '{"amount": 1000, "name":"x"}\n'.repeat(items);
  const csvOf = (items: number) => `amount,metadata[x]\n${'1000,"x ""y"""\r\n'.repeat(items)}`;

  it.each([
    ['a form', formOf, formType],
    ['JSON', jsonOf, jsonType],
    ['NDJSON', ndjsonOf, 'application/x-ndjson'],
    ['CSV', csvOf, 'text/csv'],
  ])('is linear in the number of items of %s', async (_, bodyOf, contentType) => {
    // The first counts include steps of earlier tests.
    await steps(bodyOf(500), contentType);
    const few = await steps(bodyOf(500), contentType);
    const many = await steps(bodyOf(5_000), contentType);
    expect(few).toBeGreaterThan(500);
    expect(many / few).toBeGreaterThan(9);
    expect(many / few).toBeLessThan(11);
  });
});

describe('the content type', () => {
  it.each([
    [formType, 'decodeForm'],
    ['Application/X-WWW-Form-URLencoded;charset="UTF-8"', 'decodeForm'],
    ['application/json', 'decodeJson'],
    ['application/json ; charset=utf8', 'decodeJson'],
  ])('%s is read by %s', (contentType, decoder) => {
    expect(formatOf(contentType)?.decode.name).toBe(decoder);
  });

  it.each([
    '',
    'text/plain',
    'application/jsonp',
    'application/json; charset=iso-8859-1',
    'multipart/form-data',
  ])('%j is refused, naming both accepted types', (contentType) => {
    const result = decodeBody(Buffer.from('{}'), contentType);
    expect(refused(result)).toEqual(['content_type_unsupported Content-Type']);
    expect(result).toMatchObject([
      { expected: expect.stringMatching(/x-www-form-urlencoded.*application\/json/) },
    ]);
  });
});

it('a parameter path is named in the notation of the request', () => {
  expect(paramName(['payouts', 17, 'amount'])).toBe('payouts[17][amount]');
  expect(paramName([])).toBe('');
});
