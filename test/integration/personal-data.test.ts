import { readFileSync } from 'node:fs';
import { historyToJSON } from '@temporalio/common/lib/proto-utils.js';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { readStatements } from '../../src/activities/statements.js';
import { erase } from '../../src/cli/personalData.js';
import { hasMasterKeys } from '../../src/db/accountKeys.js';
import { insertBeneficiary, lockBeneficiariesOf } from '../../src/db/beneficiaries.js';
import { connectDatabase, isRaisedByFunction, transaction } from '../../src/db/client.js';
import { newId } from '../../src/db/id.js';
import { insertPayout } from '../../src/db/payouts.js';
import { createKeyring, type SealedDetails } from '../../src/db/personalData.js';
import { createSandboxRail } from '../../src/rails/sandbox/connector.js';
import { eventually } from '../assertions/eventually.js';
import { textsIn } from '../assertions/history.js';
import { type ApiClient, createClient, textOf, untilStatus } from '../fixtures/client.js';
import { keyring } from '../fixtures/keyring.js';
import { called } from '../fixtures/operators.js';
import { livePayout } from '../fixtures/requestPayout.js';
import { createTestAccount, unbalancedCurrencies, withoutTriggers } from '../servers/database.js';
import { startSystem, type TestSystem } from '../servers/system.js';

let system: TestSystem;
beforeAll(async () => {
  system = await startSystem();
});
afterAll(async () => {
  expect(await unbalancedCurrencies(system.database)).toEqual([]);
  await system.stop();
});

/** A person and accounts that no other test uses, with valid check digits. */
const name = 'Zaphod Quuxington';
const german = {
  type: 'individual',
  name,
  country: 'DE',
  currency: 'EUR',
  iban: 'DE83370400440907060504',
} as const;
const american = {
  type: 'individual',
  name,
  country: 'US',
  currency: 'USD',
  account_number: '90817263549',
  routing_number: '021000021',
  date_of_birth: '1987-03-29',
  address: { street: 'Quuxbury Lane', building: '4711', town: 'Quuxville', country: 'US' },
} as const;
const business = {
  ...{ type: 'business', name: 'Quuxington Ltd.', country: 'DE', currency: 'EUR' },
  ...{ iban: german.iban, registration_number: 'HRB 9081726' },
} as const;
const planted = [
  ...[name, 'Quuxington', german.iban, '37040044090706', american.account_number],
  ...[american.date_of_birth, business.registration_number],
  ...[american.address.street, american.address.town],
];

/** The values as text, and as PostgreSQL shows them in binary data. */
const forms = planted.flatMap((text) => [text, Buffer.from(text).toString('hex')]);
const foundIn = (text: string) =>
  forms.filter((form) => text.toLowerCase().includes(form.toLowerCase()));

/** Every row of any table that contains one of the values, as `table: row`. */
async function leakedRows(): Promise<readonly string[]> {
  const { database } = system;
  const tables = await database<{ name: string }[]>`
    select table_name as name from information_schema.tables
     where table_schema = 'public' and table_type = 'BASE TABLE'`;
  expect(tables.length).toBeGreaterThan(20);
  const leaked: string[] = [];
  for (const { name: table } of tables) {
    const rows = await database<{ text: string }[]>`
      select t::text as text from ${database(table)} t`;
    leaked.push(
      ...rows.flatMap(({ text }) => (foundIn(text).length > 0 ? `${table}: ${text}` : [])),
    );
  }
  return leaked;
}

async function store(client: ApiClient, details: object): Promise<string> {
  const answer = await client('POST /v1/beneficiaries', { json: details });
  expect(answer.status).toBe(201);
  return textOf(answer, 'id');
}

const dollars = { source_currency: 'USD', amount: 5_000 };

describe('the identity and bank details of a beneficiary', () => {
  /** Uses of a beneficiary, including those that fail. */
  async function journey(client: ApiClient): Promise<void> {
    const [toGermany, toAmerica] = [await store(client, german), await store(client, american)];
    await store(client, business);
    for (const [beneficiary, reference] of [
      [toGermany, 'Salary'],
      [toAmerica, 'Salary'],
      [toGermany, 'simulate: reject AC04'],
    ]) {
      const payout = await client('POST /v1/payouts', {
        json: { ...dollars, beneficiary, reference },
      });
      const end = reference === 'Salary' ? 'settled' : 'failed';
      await untilStatus(client, textOf(payout, 'id'), end);
    }
    const batch = await client('POST /v1/batches', {
      json: { payouts: [{ ...dollars, beneficiary: toGermany }] },
    });
    const { body } = await client(`GET /v1/batches/${textOf(batch, 'id')}/payouts`);
    const [item] = JSON.stringify(body).match(/po_\w+/) ?? [];
    await untilStatus(client, item ?? '', 'settled');
    await refuseAll(client);
  }

  /** Sends details that are refused, each with an idempotency key, which stores the refusal. */
  async function refuseAll(client: ApiClient): Promise<void> {
    const { iban, ...withoutIban } = german;
    const mistaken = [
      { ...german, iban: iban.replace('83', '84') },
      { ...german, name: `${name}\u0007` },
      { ...german, country: name },
      { ...german, type: name },
      { ...german, bic: name },
      { ...withoutIban, iban: name },
      { ...american, routing_number: american.account_number },
      { ...american, date_of_birth: `${american.date_of_birth}x` },
      { ...business, registration_number: `#${business.registration_number}` },
      { ...american, address: { ...american.address, post_code: american.address.street } },
      { ...american, address: { ...american.address, country: american.address.town } },
    ];
    for (const [index, json] of mistaken.entries()) {
      const request = { json, idempotencyKey: `mistaken ${index}`.replace(' ', '-') };
      const first = await client('POST /v1/beneficiaries', request);
      expect(first.body['errors'], `mistaken ${index}`).toBeDefined();
      // A malformed request binds no key.
      if (first.status !== 422) continue;
      const again = await client('POST /v1/beneficiaries', request);
      expect(again.headers.get('idempotent-replayed')).toBe('true');
      expect(again.body['errors']).toEqual(first.body['errors']);
    }
  }

  beforeAll(() => journey(system.client));

  it('are in no table row in plain text, and in no workflow history', async () => {
    await readStatements(system.worker, createSandboxRail(system.bank));
    expect(await leakedRows()).toEqual([]);
    const kept = await system.database`
      select from idempotency_keys where refusal is not null and key like 'mistaken%'`;
    expect(kept.length).toBeGreaterThanOrEqual(4);
    let workflows = 0;
    for await (const { workflowId, runId, memo } of system.temporal.workflow.list()) {
      const handle = system.temporal.workflow.getHandle(workflowId, runId);
      const history = textsIn(historyToJSON(await handle.fetchHistory()));
      expect(foundIn([...history, JSON.stringify(memo)].join('\n')), workflowId).toEqual([]);
      workflows += 1;
    }
    expect(workflows).toBeGreaterThanOrEqual(5);
  });

  it('reach the bank as they were stored', async () => {
    const journal = readFileSync(system.bank.journalFile, 'utf8');
    expect(journal).toContain(german.iban);
    expect(journal).toContain(american.account_number);
    expect(journal).toContain(JSON.stringify(american.address));
    expect(journal).toContain(american.date_of_birth);
  });

  it('are not shown for another beneficiary if rows are swapped', async () => {
    const { client, database } = system;
    const [one, other] = [await store(client, german), await store(client, american)];
    await database`
      update beneficiaries set sealed = (select sealed from beneficiaries where id = ${other})
       where id = ${one}`;
    await database`
      update beneficiary_keys
         set wrapped = (select wrapped from beneficiary_keys where beneficiary_id = ${other})
       where beneficiary_id = ${one}`;
    const answer = await client(`GET /v1/beneficiaries/${one}`);
    expect(answer.status).toBe(500);
    await database`delete from beneficiary_keys where beneficiary_id = ${one}`;
    await database`delete from beneficiaries where id = ${one}`;
  });
});

describe('details that cannot be decrypted', () => {
  it('do not keep the other payouts of a batch from being sent', async () => {
    const client = await newClient();
    const ids = [
      await store(client, german),
      await store(client, german),
      await store(client, german),
    ];
    await system.database`
      update beneficiary_keys set wrapped = wrapped || '\\x00' where beneficiary_id = ${ids[1] ?? ''}`;
    const batch = await client('POST /v1/batches', {
      json: { payouts: ids.map((beneficiary) => ({ ...dollars, beneficiary })) },
    });
    const batchId = textOf(batch, 'id');
    await eventually('the other payouts are settled', 20_000, async () => {
      const rows = await system.database<{ status: string }[]>`
        select status from payouts where batch_id = ${batchId} order by batch_index`;
      const statuses = rows.map(({ status }) => status);
      return statuses.join() === 'settled,processing,settled' ? true : undefined;
    });
    // The tests below need every payout to be final, so that no retries are left.
    await system.database`
      update beneficiary_keys set wrapped = substring(wrapped for length(wrapped) - 1)
       where beneficiary_id = ${ids[1] ?? ''}`;
  });

  it('are not created by a process without the master key in use', async () => {
    const { account } = await createTestAccount(system.database);
    const otherKeyring = createKeyring(['ab'.repeat(32)]);
    const id = newId('beneficiary');
    await expect(
      insertBeneficiary(system.database, otherKeyring, {
        id,
        accountId: account.id,
        details: german,
      }),
    ).rejects.toThrow('A master key in use is not loaded.');
    expect(await hasMasterKeys(system.database, keyring)).toBe(true);
  });
});

describe('a bank account that the customer has stored before', () => {
  it('is reported, and stored anyway', async () => {
    const client = await newClient();
    const created = async (details: object) =>
      (await client('POST /v1/beneficiaries', { json: details })).body;
    const first = await created(german);
    expect(first).toMatchObject({ same_account_as: null });
    const second = await created({ ...german, name: 'Z. Quuxington', iban: spaced(german.iban) });
    expect(second).toMatchObject({ same_account_as: first['id'] });
    expect(await created(american)).toMatchObject({ same_account_as: null });
    const shown = await client(`GET /v1/beneficiaries/${String(second['id'])}`);
    expect(shown.body).toEqual(second);
    // A deleted beneficiary must not be suggested instead of the new one.
    await client(`DELETE /v1/beneficiaries/${String(first['id'])}`);
    expect(await created(german)).toMatchObject({ same_account_as: second['id'] });
  });

  it('is reported when an update makes an older beneficiary the duplicate', async () => {
    const client = await newClient();
    const older = await store(client, { ...german, iban: 'DE89370400440532013000' });
    const newer = await store(client, german);
    const { iban } = german;
    const updated = await client(`POST /v1/beneficiaries/${older}`, { json: { iban } });
    expect(updated).toMatchObject({ status: 200, body: { same_account_as: newer } });
    const shown = await client(`GET /v1/beneficiaries/${newer}`);
    expect(shown.body).toMatchObject({ same_account_as: older });
  });

  it('is not reported to another customer', async () => {
    await store(await newClient(), german);
    const answer = await (await newClient())('POST /v1/beneficiaries', { json: german });
    expect(answer.body).toMatchObject({ same_account_as: null });
  });

  it('is found even if the first beneficiaries are stored at the same moment', async () => {
    const client = await newClient();
    const ids = await Promise.all(Array.from({ length: 4 }, () => store(client, german)));
    const keys = await system.database`
      select from account_keys k join beneficiaries b using (account_id) where b.id = ${ids[0] ?? ''}`;
    expect(keys.length).toBe(1);
    const last = await client('POST /v1/beneficiaries', { json: german });
    expect(last.body).toMatchObject({ same_account_as: ids.toSorted()[0] });
  });
});

describe('erasing a beneficiary', () => {
  /** Erases the beneficiary with the operators' login; returns the message of a refusal. */
  async function erased(id: string): Promise<string> {
    const operator = connectDatabase({
      url: system.urls.operator,
      poolSize: 1,
      applicationName: 'test',
    });
    try {
      await silently(() => erase(called({ database: operator }, id)));
      return 'erased';
    } catch (error) {
      if (isRaisedByFunction(error)) return error.message;
      throw error;
    } finally {
      await operator.end();
    }
  }

  /** Moves everything that happened to a payout this far into the past. */
  async function age(payoutId: string, interval: string): Promise<void> {
    await withoutTriggers(
      system.database,
      (sql) => sql`
      update payouts
         set requested_at = requested_at - ${interval}::interval,
             processing_since = processing_since - ${interval}::interval,
             sent_since = sent_since - ${interval}::interval,
             settled_since = settled_since - ${interval}::interval
       where id = ${payoutId}`,
    );
  }

  it('deletes it and its key, and keeps its payouts and ledger entries', async () => {
    const { client, database } = system;
    const id = await store(client, german);
    const payout = await client('POST /v1/payouts', { json: { ...dollars, beneficiary: id } });
    const payoutId = textOf(payout, 'id');
    await untilStatus(client, payoutId, 'settled');
    const [before] = await database<SealedDetails[]>`
      select * from openable_beneficiaries where id = ${id}`;
    await age(payoutId, '5 years 1 day');
    const entries = await entriesOf(payoutId);
    const calculation = (await client(`GET /v1/payouts/${payoutId}/calculation`)).body;
    expect(await erased(id)).toBe('erased');

    expect((await client(`GET /v1/beneficiaries/${id}`)).status).toBe(404);
    expect(JSON.stringify(await client('GET /v1/beneficiaries?limit=100'))).not.toContain(id);
    const expanded = await client(`GET /v1/payouts/${payoutId}?expand[]=beneficiary`);
    expect(expanded.body).toMatchObject({ status: 'settled', beneficiary: id });
    expect(await entriesOf(payoutId)).toEqual(entries);
    expect(await unbalancedCurrencies(database)).toEqual([]);
    // The price can still be recalculated: test/unit/calculation.test.ts does so from these steps alone.
    expect(calculation['steps']).toHaveLength(5);
    expect((await client(`GET /v1/payouts/${payoutId}/calculation`)).body).toEqual(calculation);
    // A backup of the ciphertext cannot be opened with any remaining key.
    expect(before?.sealed).toBeInstanceOf(Buffer);
    const keys = await database`select from beneficiary_keys where beneficiary_id = ${id}`;
    expect(keys.length).toBe(0);
    const [line] = await database`
      select subject_type, operator, command from operator_actions where subject_id = ${id}`;
    expect(line).toMatchObject({ subjectType: 'beneficiary', command: { kind: 'erase' } });
    expect(await erased(id)).toBe(`${id} is erased already.`);
  });

  it('prevents payouts to it, and a repeated request does not reveal its name', async () => {
    const { client } = system;
    const request = { json: german, idempotencyKey: `erased-${newId('request')}` };
    const stored = await client('POST /v1/beneficiaries', request);
    const id = textOf(stored, 'id');
    // No bank was asked to pay this beneficiary, so no law requires it to be kept.
    const refused = await client('POST /v1/payouts', {
      json: { ...dollars, amount: 1, beneficiary: id },
    });
    expect(refused.body).toMatchObject({ code: 'amount_too_small' });
    expect(await erased(id)).toBe('erased');
    const payout = await client('POST /v1/payouts', { json: { ...dollars, beneficiary: id } });
    expect(payout.body).toMatchObject({ code: 'beneficiary_not_found' });
    const repeat = (name: string) =>
      client('POST /v1/beneficiaries', { ...request, json: { ...german, name } });
    const [right, wrong] = [await repeat(german.name), await repeat('Somebody Else')];
    expect(right).toMatchObject({ status: 422, body: { code: 'idempotency_key_reused' } });
    expect(right.body['detail']).toBe(wrong.body['detail']);
  });

  it('does not name a parameter in the answer to a repeated deletion', async () => {
    const { client } = system;
    const id = await store(client, german);
    const remove = () =>
      client(`DELETE /v1/beneficiaries/${id}`, { idempotencyKey: `deleted-${id}` });
    expect((await remove()).status).toBe(200);
    expect(await erased(id)).toBe('erased');
    const { status, body } = await remove();
    expect([status, body['code'], body['param']]).toEqual([
      422,
      'idempotency_key_reused',
      undefined,
    ]);
    expect(body['detail']).not.toContain('erased');
  });

  it('is refused if it has a payout that is not final or less than five years old', async () => {
    const { client } = system;
    const id = await store(client, german);
    const payout = await client('POST /v1/payouts', {
      json: { ...dollars, beneficiary: id, reference: 'simulate: never settle' },
    });
    await untilStatus(client, textOf(payout, 'id'), 'sent');
    await age(textOf(payout, 'id'), '6 years');
    expect(await erased(id)).toContain('has payouts that are not final');
    const other = await store(client, german);
    const paid = await client('POST /v1/payouts', { json: { ...dollars, beneficiary: other } });
    await untilStatus(client, textOf(paid, 'id'), 'settled');
    await age(textOf(paid, 'id'), '5 years -1 day');
    expect(await erased(other)).toMatch(/kept by law until \d{4}-\d\d-\d\d\.$/);
    expect((await client(`GET /v1/beneficiaries/${other}`)).body).toMatchObject({ name });
    expect(await erased('bnf_0')).toBe('There is no beneficiary bnf_0.');
  });

  it('waits for a payout that is being accepted, and is then refused', async () => {
    const { client, database, account } = system;
    const beneficiaryId = await store(client, german);
    const id = newId('payout');
    const { result } = await transaction(database, async (sql) => {
      const { id: accountId } = account.account;
      const row = { ...livePayout, id, driver: id, accountId, beneficiaryId, amount: 5_000n };
      await insertPayout(sql, row);
      await lockBeneficiariesOf(sql, [id]);
      const erasing = erased(beneficiaryId);
      await eventually('the erasure waits for the lock', 10_000, async () => {
        const waiting = await database`
          select from pg_stat_activity
           where wait_event_type = 'Lock' and query like '%erase_beneficiary%'`;
        return waiting.length > 0 ? true : undefined;
      });
      return { result: erasing };
    });
    expect(await result).toContain('has payouts that are not final');
  });

  it('does not need access to sealed details, which the operators’ login cannot read', async () => {
    const database = connectDatabase({
      ...{ url: system.urls.operator, poolSize: 1, applicationName: 'test' },
    });
    for (const table of ['beneficiary_keys', 'openable_beneficiaries']) {
      await expect(database`select from ${database(table)}`).rejects.toMatchObject({
        code: '42501',
      });
    }
    await database.end();
  });

  it('is refused to the other database roles', async () => {
    const id = await store(system.client, german);
    for (const url of [system.urls.api, system.urls.worker]) {
      const database = connectDatabase({ url, poolSize: 1, applicationName: 'test' });
      const forbidden = [
        database`select erase_beneficiary(${id})`,
        database`delete from beneficiary_keys where beneficiary_id = ${id}`,
        database`update beneficiaries set sealed = null where id = ${id}`,
      ];
      for (const statement of forbidden) {
        await expect(statement).rejects.toMatchObject({ code: '42501' });
      }
      await database.end();
    }
  });

  const entriesOf = (payoutId: string) =>
    system.database`select * from ledger_entries where payout_id = ${payoutId} order by id`;
});

/** Runs a command of the command line and discards its output. */
async function silently(work: () => Promise<void>): Promise<void> {
  const log = vi.spyOn(console, 'log').mockReturnValue();
  try {
    await work();
  } finally {
    log.mockRestore();
  }
}

const spaced = (iban: string) => iban.replaceAll(/(.{4})/g, '$1 ').trim();

/** A customer without beneficiaries. */
async function newClient(): Promise<ApiClient> {
  const { apiKey } = await createTestAccount(system.database);
  return createClient(system.apiUrl, apiKey);
}
