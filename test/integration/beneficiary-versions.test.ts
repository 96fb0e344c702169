import { afterAll, afterEach, beforeAll, describe, expect, it, vi } from 'vitest';
import { z } from 'zod';
import { erase } from '../../src/cli/personalData.js';
import { lockBeneficiary, updateBeneficiary } from '../../src/db/beneficiaries.js';
import { type Database, exactlyOne, transaction } from '../../src/db/client.js';
import type { PayoutRow } from '../../src/db/payouts.js';
import { openDetails } from '../../src/db/personalData.js';
import type { Transfer } from '../../src/rails/rail.js';
import { QuietRail } from '../fakes/quietRail.js';
import { attempt } from '../fixtures/attempt.js';
import { type ApiClient, createClient, textOf, untilStatus } from '../fixtures/client.js';
import { absentTemporal, activitiesOn } from '../fixtures/interleaving.js';
import { keyring } from '../fixtures/keyring.js';
import { called } from '../fixtures/operators.js';
import { beneficiary, requestPayout } from '../fixtures/requestPayout.js';
import { createTestAccount, createTestDatabase } from '../servers/database.js';
import { startSystem, type TestSystem } from '../servers/system.js';

// When details change, a payout still goes to the details for which it was accepted.

let system: TestSystem;
let accountId: string;
let client: ApiClient;
beforeAll(async () => {
  system = await startSystem();
  const funds = { USD: 10_000_000n };
  const { account, apiKey } = await createTestAccount(system.database, { funds });
  accountId = account.id;
  client = createClient(system.apiUrl, apiKey);
});
afterAll(() => system.stop());
afterEach(() => vi.restoreAllMocks());

/** Another valid account, with different last four digits. */
const otherIban = 'DE75512108001245126199';

async function store(): Promise<string> {
  return textOf(await client('POST /v1/beneficiaries', { form: beneficiary }), 'id');
}

const update = (id: string, json: object, idempotencyKey?: string) =>
  client(`POST /v1/beneficiaries/${id}`, {
    json,
    ...(idempotencyKey === undefined ? {} : { idempotencyKey }),
  });

/** Settles a payout to the beneficiary and returns the beneficiary shown in it. */
async function paid(id: string) {
  const json = { source_currency: 'USD', amount: 5_000, beneficiary: id };
  const payout = textOf(await client('POST /v1/payouts', { json }), 'id');
  await untilStatus(client, payout, 'settled');
  return payout;
}

const expanded = async (payout: string) =>
  (await client(`GET /v1/payouts/${payout}?expand=beneficiary`)).body;

describe('an update', () => {
  it('changes the fields sent, keeps the rest and the id, and increments the version', async () => {
    const id = await store();
    const created = await client(`GET /v1/beneficiaries/${id}`);
    expect(created.body).toMatchObject({ version: 1, updated_at: null });
    const updated = await update(id, { iban: otherIban });
    expect(updated.status).toBe(200);
    expect(updated.body).toMatchObject({
      ...{ id, version: 2, name: beneficiary.name, iban: '****6199', country: 'DE' },
      updated_at: expect.any(String),
      created_at: created.body['created_at'],
    });
    expect((await client(`GET /v1/beneficiaries/${id}`)).body).toEqual(updated.body);
  });

  it('removes the fields that belonged to the replaced value', async () => {
    const address = { street: 'Rue X', building: '7', town: 'Paris', country: 'FR' };
    const bic = 'COBADEFFXXX';
    const json = { ...beneficiary, bic, name: 'Ольга', name_latin: 'Olga', address };
    const id = textOf(await client('POST /v1/beneficiaries', { json }), 'id');
    const moved = await update(id, { address: { town: 'Lyon', country: 'FR' } });
    expect(moved.body).toMatchObject({ name_on_statement: 'Olga', bic });
    expect(moved.body['address']).toEqual({ town: 'Lyon', country: 'FR' });
    const renamed = await update(id, { name: 'Ada King' });
    expect(renamed.body).toMatchObject({ name_on_statement: 'Ada King', bic });
    expect(renamed.body).not.toHaveProperty('name_latin');
    const elsewhere = await update(id, { iban: otherIban });
    expect(elsewhere.body).toMatchObject({ version: 4, address: { town: 'Lyon' } });
    expect(elsewhere.body).not.toHaveProperty('bic');
    const unwritable = await update(id, { name: '李' });
    expect(unwritable.body).toMatchObject({ param: 'name_latin', code: 'parameter_missing' });
  });

  it('does not use up the key of a malformed update', async () => {
    const id = await store();
    const idempotencyKey = `malformed-${id}`;
    const change = (json: object) =>
      client(`POST /v1/beneficiaries/${id}`, { json, idempotencyKey });
    // The first fault is of the account's rules, the second one of the form.
    const both = { iban: 'DE89370400440532013001', routing_number: '021000021' };
    for (const _time of [1, 2]) {
      const { status, body } = await change(both);
      expect([status, body['param']]).toEqual([400, 'routing_number']);
    }
    expect((await change({ name: '李明' })).status).toBe(400);
    expect((await change({ name: '李明', name_latin: 'Li Ming' })).status).toBe(200);
  });

  it('removes blank fields, and fields that the new kind of account or type lacks', async () => {
    const address = { town: 'Paris', country: 'FR' };
    const json = { ...beneficiary, bic: 'COBADEFFXXX', date_of_birth: '1990-05-17', address };
    const id = textOf(await client('POST /v1/beneficiaries', { json }), 'id');
    const cleared = await update(id, { bic: null, date_of_birth: '', address: {} });
    expect(cleared.body).toMatchObject({ version: 2, iban: '****3000' });
    for (const name of ['bic', 'date_of_birth', 'address']) {
      expect(cleared.body).not.toHaveProperty(name);
    }
    const form = { 'address[town]': 'Lyon', 'address[country]': 'FR', date_of_birth: '1990-05-17' };
    const again = await client(`POST /v1/beneficiaries/${id}`, { form });
    expect(again.body).toMatchObject({ address: { town: 'Lyon' }, date_of_birth: '****' });
    const business = await update(id, { type: 'business', address: null });
    expect(business).toMatchObject({ status: 200, body: { type: 'business', version: 4 } });
    expect(business.body).not.toHaveProperty('date_of_birth');
    expect(business.body).not.toHaveProperty('address');
    const required = await update(id, { name: '' });
    expect(required.body).toMatchObject({ code: 'parameter_missing', param: 'name' });
  });

  it('can switch to another kind of account of the country', async () => {
    const british = { type: 'individual', name: 'Ada King', country: 'GB', currency: 'GBP' };
    const sortCode = { account_number: '66374958', routing_number: '089999' };
    const iban = 'GB29NWBK60161331926819';
    const json = { ...british, ...sortCode };
    const id = textOf(await client('POST /v1/beneficiaries', { json }), 'id');
    const byIban = await update(id, { iban });
    expect(byIban.body).toMatchObject({ version: 2, iban: '****6819' });
    expect(byIban.body).not.toHaveProperty('routing_number');
    expect((await update(id, { name: 'Ada Byron' })).body).toMatchObject({ iban: '****6819' });
    const back = await update(id, sortCode);
    expect(back.body).toMatchObject({ version: 4, account_number: '****4958' });
    expect(back.body).not.toHaveProperty('iban');
  });

  it('that changes nothing makes no version, and drops nothing', async () => {
    const json = { ...beneficiary, bic: 'COBADEFFXXX', name: 'Ольга', name_latin: 'Olga' };
    const stored = await client('POST /v1/beneficiaries', { json });
    const same = { iban: 'DE89 3704 0044 0532 0130 00', name: 'Ольга', country: 'DE' };
    for (const sent of [{}, same]) {
      expect((await update(textOf(stored, 'id'), sent)).body).toEqual(stored.body);
    }
  });

  it('is made once for its key', async () => {
    const id = await store();
    const first = await update(id, { name: 'Ada King' }, `update-${id}`);
    const again = await update(id, { name: 'Ada King' }, `update-${id}`);
    expect(again.body).toEqual(first.body);
    expect(again.body).toMatchObject({ version: 2 });
    const other = await update(id, { name: 'Ada Byron' }, `update-${id}`);
    expect(other.body).toMatchObject({ code: 'idempotency_key_reused', param: 'name' });
    expect(other.body['detail']).toMatch(`was used for ${id}`);
  });

  it('is refused as a whole, with every error', async () => {
    const id = await store();
    const wrong = await update(id, { iban: 'DE89370400440532013001', bic: 'X' });
    expect(wrong.status).toBe(422);
    expect(wrong.body).toMatchObject({ code: 'beneficiary_invalid', errors: [{}, {}] });
    const moved = await update(id, { country: 'FR', currency: 'USD' });
    expect(moved.body).toMatchObject({
      code: 'beneficiary_invalid',
      errors: [{ param: 'country' }, { param: 'currency' }],
    });
    expect((await client(`GET /v1/beneficiaries/${id}`)).body).toMatchObject({ version: 1 });
  });

  it('finds no deleted beneficiary, and none of another account', async () => {
    const id = await store();
    const { apiKey } = await createTestAccount(system.database, {});
    const stranger = createClient(system.apiUrl, apiKey);
    const foreign = await stranger(`POST /v1/beneficiaries/${id}`, { json: { name: 'Mallory' } });
    expect(foreign.status).toBe(404);
    await client(`DELETE /v1/beneficiaries/${id}`);
    expect((await update(id, { name: 'Ada King' })).status).toBe(404);
  });

  it('loses nothing when many run at once', async () => {
    const id = await store();
    const names = Array.from({ length: 8 }, (_, index) => `Ada King ${index}`);
    await Promise.all(names.map((name) => update(id, { name })));
    expect((await client(`GET /v1/beneficiaries/${id}`)).body).toMatchObject({ version: 9 });
    const [kept] = await system.database<{ versions: string[] }[]>`
      select array_agg(version::text order by version) as versions from beneficiary_versions
       where beneficiary_id = ${id}`;
    expect(kept?.versions).toEqual(['1', '2', '3', '4', '5', '6', '7', '8']);
  });

  it('is refused beyond a thousand versions', async () => {
    const id = await store();
    await transaction(system.database, async (sql) => {
      const row = exactlyOne(await lockBeneficiary(sql, accountId, id));
      await sql`update beneficiaries set version = 999 where id = ${id}`;
      const last = { ...row, version: 999 };
      await updateBeneficiary(sql, keyring, last, { ...beneficiary, name: 'Ada King' });
    });
    const refused = await update(id, { name: 'Ada Byron' });
    expect(refused.body).toMatchObject({ code: 'limit_reached', status: 422 });
    const shown = await client(`GET /v1/beneficiaries/${id}`);
    expect(shown.body).toMatchObject({ version: 1_000, name: 'Ada King' });
    const forced = system.database`select update_beneficiary(${id}, '', '')`;
    await expect(forced).rejects.toThrow(/version/);
  });
});

describe('a payout', () => {
  it('names and shows the version that it was accepted with', async () => {
    const id = await store();
    const before = await paid(id);
    await update(id, { iban: otherIban });
    const after = await paid(id);
    expect(await expanded(before)).toMatchObject({
      beneficiary_version: 1,
      beneficiary: { id, version: 1, iban: '****3000', updated_at: null },
    });
    expect(await expanded(after)).toMatchObject({
      beneficiary_version: 2,
      beneficiary: { id, version: 2, iban: '****6199' },
    });
    const list = await client('GET /v1/payouts?expand=beneficiary&limit=2');
    const ibans = z.array(z.object({ beneficiary: z.object({ iban: z.string() }) }));
    const shown = ibans.parse(list.body['data']).map(({ beneficiary: { iban } }) => iban);
    expect(shown).toEqual(['****6199', '****3000']);
    const answer = await client(`GET /v1/events?type=payout.settled&limit=2`);
    const events = z.array(z.object({ data: z.object({ beneficiary_version: z.number() }) }));
    const versions = events.parse(answer.body['data']).map(({ data }) => data);
    expect(versions).toEqual([{ beneficiary_version: 2 }, { beneficiary_version: 1 }]);
  });

  it('is sent to the account that it was accepted with, though that changed since', async () => {
    const test = await createTestDatabase();
    try {
      const sent = new RecordingRail();
      const worker = activitiesOn(test.worker, sent, absentTemporal());
      const funds = { USD: 10_000_000n };
      const { account } = await createTestAccount(test.database, { funds });
      const first = await requestPayout(test.database, account.id);
      const second = await requestPayout(test.database, account.id);
      const decide = ({ id }: PayoutRow) =>
        attempt(() => worker.decidePayouts({ driver: id, ids: [id], workflowAgeMs: 0 }));
      await decide(first);
      await renamed(test.database, first);
      await renamed(test.database, second);
      await decide(second);
      for (const { id } of [first, second]) {
        await attempt(() => worker.submitPayouts({ driver: id, ids: [id] }));
      }
      expect(sent.names.get(first.id)).toBe(beneficiary.name);
      expect(sent.names.get(second.id)).toBe('Ada King');
      await expect(
        test.database`update payouts set beneficiary_version = null where id = ${second.id}`,
      ).rejects.toThrow(/frozen|check/);
      const changed = test.database`update payouts set beneficiary_version = 2 where id = ${first.id}`;
      await expect(changed).rejects.toThrow(/frozen/);
    } finally {
      await test.drop();
    }
  });
});

class RecordingRail extends QuietRail {
  readonly names = new Map<string, string>();
  override readonly submit = async (transfers: readonly Transfer[]) => {
    for (const { key, beneficiary: to } of transfers) this.names.set(key, to.name);
    return transfers.map(({ key }) => ({ key, kind: 'accepted', reference: key }) as const);
  };
}

/** Renames the payout's beneficiary. */
async function renamed(database: Database, { accountId, beneficiaryId }: PayoutRow) {
  await transaction(database, async (sql) => {
    const row = exactlyOne(await lockBeneficiary(sql, accountId, beneficiaryId));
    const details = exactlyOne(openDetails(keyring, row));
    await updateBeneficiary(sql, keyring, row, { ...details, name: 'Ada King' });
  });
}

it('erases every version', async () => {
  const id = await store();
  await update(id, { iban: otherIban });
  vi.spyOn(console, 'log').mockReturnValue();
  await erase(called(system, id));
  const rows = await system.database`
    select from beneficiary_versions where beneficiary_id = ${id}`;
  expect(rows.length).toBe(0);
  expect((await update(id, { name: 'Ada King' })).status).toBe(404);
});
