import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest';
import { readApiConfig, readWorkerConfig } from '../../src/config.js';
import { callBack } from '../fakes/bankCallback.js';
import { masterKey } from '../fixtures/keyring.js';
import { startApiProcess } from '../servers/apiProcess.js';
import { createTestDatabase, type TestDatabase } from '../servers/database.js';

let test: TestDatabase;
beforeAll(async () => {
  test = await createTestDatabase();
});
afterAll(() => test?.drop());

const [older, newer, foreign] = ['older', 'newer', 'foreign'].map(
  (name) => `${name}-callback-secret`,
);

/** The answers of an API with these secrets to callbacks signed with each of the three. */
async function answersOf(env: Readonly<Record<string, string>>): Promise<readonly number[]> {
  const api = await startApiProcess(test.url, env);
  onTestFinished(() => api.part.stop());
  const answers: number[] = [];
  for (const secret of [older ?? '', newer ?? '', foreign ?? '']) {
    answers.push(await callBack({ apiUrl: api.url, bank: { callbackSecret: secret } }, []));
  }
  return answers;
}

describe('the secret of callbacks', () => {
  it('can be rotated: both are accepted for a while, then only the new one', async () => {
    const during = {
      SANDBOX_BANK_CALLBACK_SECRET: newer ?? '',
      SANDBOX_BANK_CALLBACK_SECRET_PREVIOUS: older ?? '',
    };
    expect(await answersOf(during)).toEqual([200, 200, 401]);
    const after = { ...during, SANDBOX_BANK_CALLBACK_SECRET_PREVIOUS: '' };
    expect(await answersOf(after)).toEqual([401, 200, 401]);
  });

  it('is required only by the API, and the token of the bank only by the workers', () => {
    const both = {
      DATABASE_URL: 'postgres://x/y',
      TEMPORAL_ADDRESS: 'temporal:7233',
      MASTER_KEY: masterKey,
    };
    const callbacks = { SANDBOX_BANK_CALLBACK_SECRET: newer ?? '' };
    const bank = { SANDBOX_BANK_URL: 'http://bank', SANDBOX_BANK_TOKEN: 'a-token-of-the-bank' };
    const api = readApiConfig({ ...both, ...bank, ...callbacks, FINGERPRINT_SECRET: foreign });
    const worker = readWorkerConfig({ ...both, ...bank, ...callbacks, RATE_SOURCE: 'reference' });
    expect(Object.values(api)).not.toContain(bank.SANDBOX_BANK_TOKEN);
    expect(Object.values(worker)).not.toContain(newer);
  });
});
