import { pino } from 'pino';
import { expect, it } from 'vitest';
import { createRegistry } from '../../src/metrics.js';
import { serveMetrics, watchReadiness } from '../../src/metricsServer.js';

it('is a metric, and its changes are logged once with their reason', async ({ onTestFinished }) => {
  const lines: string[] = [];
  const log = pino({}, { write: (line: string) => lines.push(line) });
  let whyUnready = async (): Promise<string | undefined> => undefined;
  const { url, close } = await serveMetrics({
    ...{ host: '127.0.0.1', port: 0, registry: await createRegistry('test') },
    isReady: watchReadiness(log, () => whyUnready()),
  });
  onTestFinished(close);
  const read = async () => {
    const paths = ['metrics', 'readyz'];
    const [page, ready] = await Promise.all(paths.map((path) => fetch(`${url}/${path}`)));
    return [/^corridor_ready\{.*\} (\d)$/m.exec((await page?.text()) ?? '')?.[1], ready?.status];
  };
  expect(await read()).toEqual(['1', 200]);
  expect(lines).toEqual([]);

  whyUnready = async () => 'the schema is old';
  expect(await read()).toEqual(['0', 503]);
  whyUnready = () => Promise.reject(new Error('The database is gone.'));
  expect(await read()).toEqual(['0', 503]);
  // A host that has vanished never answers.
  whyUnready = () => new Promise(() => undefined);
  expect(await read()).toEqual(['0', 503]);
  whyUnready = async () => undefined;
  expect(await read()).toEqual(['1', 200]);
  expect(lines).toEqual([
    expect.stringMatching(
      /"level":40.*"reason":"the schema is old","msg":"the process is not ready"/,
    ),
    expect.stringMatching(/"level":40.*"msg":"the process is ready again"/),
  ]);
}, 20_000);
