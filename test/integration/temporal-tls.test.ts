import { readFileSync } from 'node:fs';
import { rm, writeFile } from 'node:fs/promises';
import { createSecureServer, type IncomingHttpHeaders, type ServerHttp2Stream } from 'node:http2';
import { join } from 'node:path';
import { defaultPayloadConverter as converter } from '@temporalio/common';
import proto from '@temporalio/proto';
import { NativeConnection } from '@temporalio/worker';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { attemptsOf } from '../../src/cli/showPayout.js';
import { readOperatorTemporalConfig } from '../../src/config.js';
import { connectTemporal, refusalOf } from '../../src/temporal/client.js';
import { connectionOptions } from '../../src/temporal/connection.js';
import { encryptingCodec } from '../../src/temporal/encryption.js';
import { failureConverter } from '../../src/temporal/failureConverter.js';
import { pendingActivities } from '../../src/temporal/pendingActivities.js';
import { openTlsLine, type TlsLine } from '../fakes/tlsLine.js';
import { makeCertificates } from '../fixtures/certificates.js';
import { temporalAddress } from '../servers/temporalAddress.js';

let certificates: Awaited<ReturnType<typeof makeCertificates>>;
let line: TlsLine;
/** The processes' configuration. */
let settings: Readonly<Record<string, string>>;

beforeAll(async () => {
  certificates = await makeCertificates();
  line = await openTlsLine(temporalAddress(), certificates);
  settings = {
    TEMPORAL_ADDRESS: line.address,
    TEMPORAL_TLS_CA_FILE: certificates.ca.cert,
    TEMPORAL_TLS_CERT_FILE: certificates.client.cert,
    TEMPORAL_TLS_KEY_FILE: certificates.client.key,
  };
});
afterAll(async () => {
  await line?.close();
  await rm(certificates.directory, { recursive: true });
});

const without = (...names: readonly string[]) =>
  Object.fromEntries(Object.entries(settings).filter(([name]) => !names.includes(name)));

/** Calls the server with a client like that of the API and the command line. */
async function byClient(env: Readonly<Record<string, string>>) {
  const temporal = connectTemporal(readOperatorTemporalConfig(env));
  try {
    // The client repeats a refused call until its deadline, so only the accepted one gets more time than it needs.
    const limitMs = env === settings ? 10_000 : 500;
    await temporal.withDeadline(Date.now() + limitMs, () => temporal.workflow.count());
    return 'let in';
  } finally {
    await temporal.connection.close();
  }
}

/** The server's objection to the settings. */
async function refusalWith(env: Readonly<Record<string, string>>) {
  const temporal = connectTemporal(readOperatorTemporalConfig(env));
  try {
    return await refusalOf(temporal);
  } finally {
    await temporal.connection.close();
  }
}

/** Calls the server as `corridor payouts show` does, about a workflow that does not exist. */
async function byShow(env: Readonly<Record<string, string>>) {
  const config = readOperatorTemporalConfig(env);
  await expect(pendingActivities(config, 'po_none')).rejects.toThrow('workflow not found');
  return 'let in';
}

/** Calls the server with a worker's connection. */
async function byWorker(env: Readonly<Record<string, string>>) {
  const config = readOperatorTemporalConfig(env);
  const connection = await NativeConnection.connect(connectionOptions(config));
  await connection.close();
  return 'let in';
}

/** Starts a server with TLS that answers every gRPC call with `answer`. */
async function openGrpc(answer: (stream: ServerHttp2Stream, headers: IncomingHttpHeaders) => void) {
  const { cert, key } = certificates.server;
  const server = createSecureServer({ cert: readFileSync(cert), key: readFileSync(key) });
  server.on('stream', answer);
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const bound = server.address();
  const port = typeof bound === 'object' && bound !== null ? bound.port : 0;
  return { address: `127.0.0.1:${port}`, close: () => server.close() };
}

describe('a connection to Temporal with TLS', () => {
  it.each([
    ['a client', byClient],
    ['a command that shows a payout', byShow],
    ['a worker', byWorker],
  ])('of %s is accepted with its certificate, and not without', async (_, connect) => {
    const before = line.count();
    expect(await connect(settings)).toBe('let in');
    expect(line.count()).toBeGreaterThan(before);
    const refused = [
      without('TEMPORAL_TLS_CERT_FILE', 'TEMPORAL_TLS_KEY_FILE'),
      without('TEMPORAL_TLS_CA_FILE'),
      { ...settings, TEMPORAL_TLS_SERVER_NAME: 'other.internal' },
      { TEMPORAL_ADDRESS: line.address },
    ];
    const after = line.count();
    for (const env of refused)
      await expect(connect(env), Object.keys(env).join()).rejects.toThrow();
    expect(line.count()).toBe(after);
  });

  it('checks the certificate against the configured name', async () => {
    const named = { ...settings, TEMPORAL_TLS_SERVER_NAME: 'temporal.internal' };
    expect(await byClient(named)).toBe('let in');
    expect(await byShow(named)).toBe('let in');
    expect(await byWorker(named)).toBe('let in');
  });

  it('reports a namespace that the server does not have', async () => {
    expect(await refusalWith(settings)).toBeUndefined();
    const wrong = { ...settings, TEMPORAL_NAMESPACE: 'payuots' };
    const refusal = 'TEMPORAL_NAMESPACE: expected a namespace of the server, not payuots';
    expect(await refusalWith(wrong)).toBe(refusal);
    const show = pendingActivities(readOperatorTemporalConfig(wrong), 'po_1');
    await expect(show).rejects.toThrow(refusal);
  });

  it('sends the API key over TLS only, and reports when the server refuses it', async () => {
    const seen: unknown[] = [];
    const server = await openGrpc((stream, { authorization }) => {
      seen.push(authorization);
      stream.respond(
        { ':status': 200, 'content-type': 'application/grpc', 'grpc-status': '16' },
        { endStream: true },
      );
    });
    try {
      const env = {
        TEMPORAL_ADDRESS: server.address,
        TEMPORAL_TLS_CA_FILE: certificates.ca.cert,
        TEMPORAL_API_KEY: 'a-key-of-the-tests',
      };
      const show = pendingActivities(readOperatorTemporalConfig(env), 'po_1');
      await expect(show).rejects.toThrow('TEMPORAL_API_KEY or TEMPORAL_TLS_CERT: expected');
      expect(await refusalWith(env)).toContain('TEMPORAL_API_KEY or TEMPORAL_TLS_CERT: expected');
      expect(new Set(seen)).toEqual(new Set(['Bearer a-key-of-the-tests']));
      expect(() => readOperatorTemporalConfig({ ...env, TEMPORAL_TLS: 'false' })).toThrow(
        'TEMPORAL_TLS: expected true with a certificate, a server name or an API key',
      );
    } finally {
      server.close();
    }
  });
});

describe('the attempts in progress', () => {
  const keys = [`2026-11:${'a1'.repeat(32)}`];
  const { DescribeWorkflowExecutionRequest, DescribeWorkflowExecutionResponse } =
    proto.temporal.api.workflowservice.v1;
  const { Timestamp } = proto.google.protobuf;

  /** The lines that `show` prints of a server's response, and the request that it sent. */
  async function shownOf(
    response: Parameters<typeof DescribeWorkflowExecutionResponse.encode>[0],
    env: Readonly<Record<string, string>> = {},
  ) {
    const message = Buffer.from(DescribeWorkflowExecutionResponse.encode(response).finish());
    const sent: Buffer[] = [];
    const called: IncomingHttpHeaders[] = [];
    const server = await openGrpc((stream, headers) => {
      called.push(headers);
      stream.on('data', (part: Buffer) => sent.push(part));
      stream.on('wantTrailers', () => stream.sendTrailers({ 'grpc-status': '0' }));
      stream.respond(
        { ':status': 200, 'content-type': 'application/grpc' },
        { waitForTrailers: true },
      );
      const frame = Buffer.alloc(5);
      frame.writeUInt32BE(message.length, 1);
      stream.on('end', () => stream.end(Buffer.concat([frame, message])));
    });
    try {
      const config = readOperatorTemporalConfig({
        TEMPORAL_ADDRESS: server.address,
        TEMPORAL_TLS_CA_FILE: certificates.ca.cert,
        TEMPORAL_NAMESPACE: 'payments',
        ...env,
      });
      const lines = await attemptsOf({ temporalConfig: () => config }, 'po_1');
      return {
        lines,
        headers: called[0],
        sent: DescribeWorkflowExecutionRequest.decode(Buffer.concat(sent).subarray(5)),
      };
    } finally {
      server.close();
    }
  }

  it('are read from the messages that Temporal documents', async () => {
    const response = {
      workflowExecutionInfo: { status: 1, taskQueue: 'payouts' },
      pendingActivities: [
        {
          activityId: '3',
          activityType: { name: 'submitPayouts' },
          attempt: 4,
          scheduledTime: Timestamp.fromObject({ seconds: 4_102_444_800 }),
          lastFailure: { message: 'the rail answered 503', cause: { message: 'inner' } },
        },
        { activityType: { name: 'applyEvents' }, attempt: 1 },
      ],
    };
    const { lines, headers, sent } = await shownOf(response);
    expect(lines).toEqual([
      'submitPayouts: attempt 4, after: the rail answered 503, next at 2100-01-01T00:00:00.000Z',
      'applyEvents: attempt 1',
    ]);
    expect(sent).toMatchObject({ namespace: 'payments', execution: { workflowId: 'po_1' } });
    expect(headers).toMatchObject({
      ':path': '/temporal.api.workflowservice.v1.WorkflowService/DescribeWorkflowExecution',
      'temporal-namespace': 'payments',
    });
    expect((await shownOf({})).lines).toEqual([]);
  });

  it('show the message of an encrypted failure to an operator who has the key', async () => {
    const failure = failureConverter.errorToFailure(new Error('the rail answered 503'), converter);
    const [encodedAttributes] = await encryptingCodec(keys).encode([
      failure.encodedAttributes ?? {},
    ]);
    const lastFailure = { ...failure, ...(encodedAttributes && { encodedAttributes }) };
    const pendingActivities = [
      { activityType: { name: 'submitPayouts' }, attempt: 2, lastFailure },
      { activityType: { name: 'applyEvents' }, attempt: 3, lastFailure: { message: '' } },
    ];
    const linesWith = async (TEMPORAL_ENCRYPTION_KEYS?: string) => {
      const env = TEMPORAL_ENCRYPTION_KEYS === undefined ? {} : { TEMPORAL_ENCRYPTION_KEYS };
      return (await shownOf({ pendingActivities }, env)).lines;
    };
    const other = 'applyEvents: attempt 3';
    const line = 'submitPayouts: attempt 2, after: ';
    const missing =
      'TEMPORAL_ENCRYPTION_KEYS: a payload was encrypted with the key 2026-11, which is not set';
    expect(await linesWith(keys.join(' '))).toEqual([`${line}the rail answered 503`, other]);
    expect(await linesWith()).toEqual([`${line}Encoded failure (${missing})`, other]);
    const newer = `2026-12:${'b2'.repeat(32)}`;
    expect(await linesWith(newer)).toEqual([`${line}Encoded failure (${missing})`, other]);
    const wrong = `2026-11:${'b2'.repeat(32)}`;
    expect(await linesWith(wrong)).toEqual([
      expect.stringMatching(/Encoded failure \(.+\)$/),
      other,
    ]);
  });

  it('cannot fake another line of the output', async () => {
    const lastFailure = { message: 'no\u001b[2J\npo_1  settled' };
    const activity = { activityType: { name: 'submitPayouts' }, attempt: 1, lastFailure };
    const { lines } = await shownOf({ pendingActivities: [activity] });
    expect(lines).toEqual(['submitPayouts: attempt 1, after: no?[2J?po_1  settled']);
  });

  it('are unknown if the server does not answer in time', async () => {
    const server = await openGrpc(() => undefined);
    const config = readOperatorTemporalConfig({
      TEMPORAL_ADDRESS: server.address,
      TEMPORAL_TLS_CA_FILE: certificates.ca.cert,
    });
    try {
      expect(await attemptsOf({ temporalConfig: () => config }, 'po_1')).toEqual([
        expect.stringContaining('Attempts unknown: 4 DEADLINE_EXCEEDED'),
      ]);
    } finally {
      server.close();
    }
  });
});

describe('a setting of the connection', () => {
  const reading = (env: Readonly<Record<string, string>>) => () => readOperatorTemporalConfig(env);

  it('of a certificate needs its key, and a key its certificate', () => {
    expect(reading(without('TEMPORAL_TLS_KEY_FILE'))).toThrow(
      'TEMPORAL_TLS_KEY: expected the private key of TEMPORAL_TLS_CERT in PEM, but it is not set',
    );
    expect(reading(without('TEMPORAL_TLS_CERT_FILE'))).toThrow(
      'TEMPORAL_TLS_CERT: expected the certificate of TEMPORAL_TLS_KEY in PEM, but it is not set',
    );
    expect(reading({ ...settings, TEMPORAL_TLS_KEY_FILE: certificates.server.key })).toThrow(
      'TEMPORAL_TLS_KEY: expected the private key of TEMPORAL_TLS_CERT in PEM, but its value is not',
    );
  });

  it('must name a readable PEM file', async () => {
    expect(reading({ ...settings, TEMPORAL_TLS_CA_FILE: '/nowhere/ca.pem' })).toThrow(
      'TEMPORAL_TLS_CA_FILE: expected a file that can be read',
    );
    const noise = join(certificates.directory, 'noise.pem');
    await writeFile(noise, '-----BEGIN CERTIFICATE-----\nnothing\n-----END CERTIFICATE-----\n');
    expect(reading({ ...settings, TEMPORAL_TLS_CA_FILE: noise })).toThrow(
      'TEMPORAL_TLS_CA: expected a certificate in PEM, but its value is not',
    );
    expect(reading({ ...settings, TEMPORAL_TLS_CERT_FILE: certificates.client.key })).toThrow(
      'TEMPORAL_TLS_CERT: expected a certificate in PEM, but its value is not',
    );
    expect(reading({ ...settings, TEMPORAL_TLS_KEY_FILE: certificates.client.cert })).toThrow(
      'TEMPORAL_TLS_KEY: expected the private key of TEMPORAL_TLS_CERT in PEM, but its value is not',
    );
  });

  it.each([
    ['2026-03', 'one to eight keys'],
    [`2026-03:${'a1'.repeat(31)}`, 'one to eight keys'],
    ['none', 'one to eight keys'],
    [`2026-03:${'a1'.repeat(32)} 2026-03:${'b2'.repeat(32)}`, 'keys with different ids'],
  ])('refuses the encryption keys %s', (keys, expected) => {
    const read = reading({ ...settings, TEMPORAL_ENCRYPTION_KEYS: keys });
    expect(read).toThrow(`TEMPORAL_ENCRYPTION_KEYS: expected ${expected}`);
    expect(read).not.toThrow('a1a1');
  });
});
