import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { ledgerActivities } from '../../src/activities/ledger.js';
import { insertBeneficiary } from '../../src/db/beneficiaries.js';
import { exactlyOne } from '../../src/db/client.js';
import { newId } from '../../src/db/id.js';
import { insertQuote } from '../../src/db/quotes.js';
import { currentTerms } from '../../src/db/terms.js';
import { heldRateMaximumAgeMs } from '../../src/domain/acceptance.js';
import { parseRate } from '../../src/domain/fx.js';
import { isRefusal } from '../../src/domain/refusal.js';
import { createRails } from '../../src/rails/registry.js';
import { createSandboxRail } from '../../src/rails/sandbox/connector.js';
import { silentDeliverer } from '../fakes/silentDeliverer.js';
import { price } from '../fixtures/corridors.js';
import { usualFactRules } from '../fixtures/factRules.js';
import { keyring } from '../fixtures/keyring.js';
import {
  createTestAccount,
  createTestDatabase,
  type TestAccount,
  type TestDatabase,
} from '../servers/database.js';

const dayMs = 24 * 60 * 60 * 1000;
const request = {
  sourceCurrency: 'USD',
  destinationCurrency: 'EUR',
  amount: 10_000n,
  fixedSide: 'source',
} as const;

let test: TestDatabase;
let caller: TestAccount;
let beneficiary: string;
// Accepting a payout only needs the name of the rail, and does not call it.
const rail = createSandboxRail({ url: 'http://127.0.0.1:9', apiToken: 'a' });

beforeAll(async () => {
  test = await createTestDatabase();
  caller = await createTestAccount(test.database);
  beneficiary = newId('beneficiary');
  await insertBeneficiary(test.database, keyring, {
    id: beneficiary,
    accountId: caller.account.id,
    details: {
      type: 'individual',
      name: 'Ada Lovelace',
      country: 'DE',
      currency: 'EUR',
      iban: 'DE89370400440532013000',
    },
  });
});
afterAll(async () => {
  await rail.close();
  await test.drop();
});

/** A quote at 0.9 that was made this many milliseconds ago. */
async function quoteMade(agoMs: number): Promise<string> {
  const priced = price({ ...request, mid: parseRate('0.9') });
  if (isRefusal(priced)) throw new Error(`The quote was refused: ${priced.code}`);
  const id = newId('quote');
  const kept = { sourceRateId: null, destinationRateId: null, feeTermsId: 1n, spreadTermsId: null };
  const origin = { rateProvider: 'test', rateAsOf: new Date(), ...kept };
  await insertQuote(test.database, {
    ...request,
    id,
    accountId: caller.account.id,
    createdAt: (await currentTerms(test.database, caller.account.id)).at,
    price: priced,
    origin,
  });
  const ago = `${agoMs} milliseconds`;
  await test.database`
    update quotes set created_at = created_at - ${ago}::interval,
                      expires_at = expires_at - ${ago}::interval where id = ${id}`;
  return id;
}

/** A pending payout with this quote, requested this long after the quote was made. */
async function requestAfter(quote: string, afterMs: number): Promise<string> {
  const id = newId('payout');
  await test.database`
    insert into payouts (id, account_id, mode, driver, quote_id, beneficiary_id, requested_at)
    select ${id}, account_id, 'test', ${id}, id, ${beneficiary},
           created_at + ${`${afterMs} milliseconds`}::interval
      from quotes where id = ${quote}`;
  return id;
}

/** Runs the activity that decides, as the payout's workflow does. */
async function decided(payout: string, workflowAgeMs = 0) {
  const { decidePayouts } = ledgerActivities({
    database: test.worker,
    rails: createRails([rail]),
    rateMaximumAgeMs: { test: dayMs, live: dayMs },
    factRules: usualFactRules,
    deliverer: silentDeliverer,
  });
  await decidePayouts({ driver: payout, ids: [payout], workflowAgeMs });
  const [row] = await test.database<
    { status: string; statusReason: string | null; usedBy: string | null; entries: number }[]
  >`
    select p.status, p.status_reason, q.used_by,
           (select count(*)::int from ledger_entries e where e.payout_id = p.id) as entries
      from payouts p left join quotes q on q.id = p.quote_id where p.id = ${payout}`;
  return exactlyOne(row);
}

const expired = { status: 'failed', statusReason: 'quote_expired', usedBy: null, entries: 0 };
const accepted = (usedBy: string | null) => ({
  status: 'processing',
  statusReason: null,
  usedBy,
  entries: 1,
});

describe('a quote that is valid for 30 seconds', () => {
  it('is accepted for a payout requested after 29.999 s', async () => {
    const payout = await requestAfter(await quoteMade(40_000), 29_999);
    expect(await decided(payout)).toEqual(accepted(payout));
  });

  it.each([30_000, 30_001])(
    'is refused for a payout requested after %i ms, and stays unused',
    async (afterMs) => {
      const payout = await requestAfter(await quoteMade(40_000), afterMs);
      expect(await decided(payout)).toEqual(expired);
    },
  );

  it('is accepted for a payout requested in time, even if it has expired at the decision', async () => {
    const quote = await quoteMade(200_000);
    const payout = await requestAfter(quote, 1_000);
    expect(await decided(payout)).toEqual(accepted(payout));
  });

  it('gives the payout its rate, whatever the market does', async () => {
    const payout = await requestAfter(await quoteMade(0), 0);
    await decided(payout);
    const [row] = await test.database<{ rate: string; mid: string }[]>`
      select rate::text, mid::text from payouts where id = ${payout}`;
    // 50 basis points below the quote's mid rate.
    expect(row).toEqual({ rate: '0.8955', mid: '0.9' });
  });

  it('cannot be extended in the database', async () => {
    const quote = await quoteMade(0);
    const longer = test.database`
      update quotes set expires_at = expires_at + interval '1 millisecond' where id = ${quote}`;
    await expect(longer).rejects.toMatchObject({ code: '23514' });
  });
});

describe('a quoted payout that is decided late', () => {
  it('is refused after five minutes, though it was requested in time', async () => {
    const quote = await quoteMade(heldRateMaximumAgeMs + 2_000);
    const payout = await requestAfter(quote, 1_000);
    expect(await decided(payout)).toEqual(expired);
  });

  it('is accepted just before five minutes', async () => {
    // Ten seconds are longer than this machine ever pauses between two statements.
    const payout = await requestAfter(await quoteMade(heldRateMaximumAgeMs - 10_000), 0);
    expect(await decided(payout)).toEqual(accepted(payout));
  });

  it('is refused if only its workflow is older than five minutes', async () => {
    const payout = await requestAfter(await quoteMade(0), 0);
    expect(await decided(payout, heldRateMaximumAgeMs + 1)).toEqual(expired);
  });

  it('is accepted if neither the quote nor the workflow is older than five minutes', async () => {
    const payout = await requestAfter(await quoteMade(0), 0);
    expect(await decided(payout, heldRateMaximumAgeMs)).toEqual(accepted(payout));
  });
});

it('a payout at the live rate has no age limit', async () => {
  const id = newId('payout');
  await test.database`
    insert into payouts (id, account_id, mode, driver, beneficiary_id, source_currency,
                         destination_currency, fixed_side, amount, requested_at)
    values (${id}, ${caller.account.id}, 'test', ${id}, ${beneficiary}, 'USD', 'EUR', 'source',
            10000, now() - interval '3 days')`;
  expect(await decided(id, 3 * dayMs)).toEqual(accepted(null));
});
