import { createServer } from 'node:http';
import { expect, it, onTestFinished } from 'vitest';
import { listenOnAnyPort } from '../../sandbox/stack/ports.js';
import { createSandboxRail } from '../../src/rails/sandbox/connector.js';
import { beneficiary } from '../fixtures/requestPayout.js';

it('a text in place of JSON, which may contain personal data, does not get into the error', async () => {
  const server = createServer((_, answer) => answer.end('Zaphod Quuxington is unknown here'));
  const url = `http://127.0.0.1:${await listenOnAnyPort(server)}`;
  const rail = createSandboxRail({ url, apiToken: 'a' });
  onTestFinished(async () => {
    await rail.close();
    server.close();
  });
  const transfer = { key: 'po_1', amountMinor: 1n, currency: 'EUR', beneficiary, remittance: '' };
  const detail = "The sandbox bank's answer to /transfers is not JSON.";
  expect(await rail.submit([transfer])).toEqual([{ key: 'po_1', kind: 'unknown', detail }]);
  await expect(rail.lookup(['po_1'])).rejects.toThrow(
    /^The sandbox bank's answer to \S+ is not JSON/,
  );
});
