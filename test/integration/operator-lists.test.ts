import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { z } from 'zod';
import { listAccounts } from '../../src/cli/account.js';
import { showAudit } from '../../src/cli/audit.js';
import { listBatches } from '../../src/cli/batches.js';
import { listPayouts } from '../../src/cli/payouts.js';
import { reconcile } from '../../src/cli/reconcile.js';
import { listWebhooks } from '../../src/cli/webhooks.js';
import { storeStatement } from '../../src/db/statements.js';
import { QuietRail } from '../fakes/quietRail.js';
import { called, shown } from '../fixtures/operators.js';
import { payoutActivities } from '../fixtures/payoutActivities.js';
import { requestPayout } from '../fixtures/requestPayout.js';
import {
  createTestAccount,
  createTestDatabase,
  type TestDatabase,
  withoutTriggers,
} from '../servers/database.js';

// What operators see of a list that is longer than the thousand rows that are printed.

const more = 'Only the first 1,000 are listed; there are more.';

let test: TestDatabase;

beforeAll(async () => {
  test = await createTestDatabase();
});
afterAll(() => test.drop());

/** Runs a list as an operator does. Returns the ids that its lines begin with, and what it says on stderr. */
async function listed(print: () => Promise<void>) {
  const error = vi.spyOn(console, 'error').mockReturnValue();
  try {
    const lines = (await shown(print)).split('\n');
    const ids = lines.flatMap((line) => /^[a-z]+_\w+/.exec(line) ?? []);
    const rows = lines.filter((line) => !line.startsWith(' ')).length;
    return { ids, rows, hint: error.mock.calls.join('\n') };
  } finally {
    error.mockRestore();
  }
}

/** A payout that was requested and decided, and not sent yet. */
async function accepted(): Promise<string> {
  const { account } = await createTestAccount(test.database);
  const { id } = await requestPayout(test.database, account.id);
  const { decidePayouts } = payoutActivities(test.worker, new QuietRail());
  await decidePayouts({ driver: id, ids: [id], workflowAgeMs: 0 });
  return id;
}

describe('a list of more than a thousand', () => {
  it('payouts begins with the parked ones of each mode, however long others have waited', async () => {
    const id = await accepted();
    const list = () => listed(() => listPayouts(called(test, '')));
    await withoutTriggers(test.database, async (sql) => {
      await sql`
        insert into payouts
        select copy.* from payouts p cross join (values ('live', 'a-bank'), ('test', 'sandbox')) m (name, rail)
         cross join jsonb_populate_record(p, jsonb_build_object('id', 'po_parked_' || name, 'driver', 'po_' || name,
           'mode', name, 'rail', m.rail, 'attention_reason', 'outcome_unknown', 'attention_detail', '', 'attention_at', now())) copy
         where p.id = ${id}`;
    });
    expect(await list()).toEqual({ ids: ['po_parked_live', 'po_parked_test'], rows: 2, hint: '' });

    await withoutTriggers(test.database, async (sql) => {
      await sql`
        insert into payouts
        select copy.* from payouts p cross join generate_series(1, 999) n
         cross join jsonb_populate_record(p, jsonb_build_object('id', 'po_' || n, 'driver', 'po_' || n,
           'mode', 'live', 'rail', 'a-bank', 'submit_started_at', now() - make_interval(hours => n))) copy
         where p.id = ${id}`;
    });
    const { ids, hint } = await list();
    expect(ids.slice(0, 2)).toEqual(['po_parked_live', 'po_999']);
    expect(ids).toHaveLength(1_000);
    expect(hint).toBe(more);
  });

  it('reconcile counts all breaks, and says that it lists only the oldest', async () => {
    const date = '2026-11-02';
    const lines = Array.from({ length: 1_500 }, (_, at) => ({
      ...{ key: `po_stranger${at}`, bankReference: 'SBX', direction: 'debit' as const },
      ...{ amountMinor: 1n, currency: 'EUR', bookedAt: `${date}T12:00:00.000Z` },
    }));
    await storeStatement(test.worker, { rail: 'sandbox', date, closed: true, lines });
    const run = async (isJson: boolean) => {
      const outcomes: boolean[] = [];
      const text = await shown(async () => {
        outcomes.push(await reconcile({ ...called(test, ''), isJson }));
      });
      expect(outcomes).toEqual([false]);
      return text;
    };
    const text = await run(false);
    expect(text.match(/^po_stranger\d+ {2}debit no such payout/gm)).toHaveLength(1_000);
    expect(text).toContain('\nOnly the oldest 1000 of 1500 differences are listed.\n1500 breaks.');
    const { breaks, breaksTotal } = z
      .object({ breaks: z.array(z.unknown()), breaksTotal: z.number() })
      .parse(JSON.parse(await run(true)));
    expect([breaks.length, breaksTotal]).toEqual([1_000, 1_500]);
  });

  it.each([
    ['accounts', () => listAccounts(called(test, ''))],
    ['batches', () => listBatches(called(test, ''))],
    ['webhook endpoints', () => listWebhooks(called(test, ''))],
    ['entries of the audit log', () => showAudit(called(test, ''))],
  ])('%s ends after a thousand, and says that there are more', async (_, print) => {
    const { account } = await createTestAccount(test.database);
    const id = account.id;
    await withoutTriggers(test.database, async (sql) => {
      await sql`
        insert into accounts (id, mode, name, api_version)
        select 'acc_' || n, 'test', 'Account', '2026-06-01' from generate_series(1, 1001) n
        on conflict do nothing`;
      await sql`
        insert into batches (id, account_id, total, open, rates)
        select 'bat_' || n, ${id}, 1, 1, '[]' from generate_series(1, 1001) n on conflict do nothing`;
      await sql`
        insert into webhook_endpoints (id, account_id, url, events, api_version, status)
        select 'we_' || n, ${id}, 'https://x.example/', '{*}', '2026-06-01', 'disabled'
          from generate_series(1, 1001) n on conflict do nothing`;
      await sql`
        insert into operator_actions (id, subject_id, actor_kind, operator, reason, command, outcome, detail)
        select 'op_' || n, ${id}, 'operator', 'grace', 'a test', '{"kind": "limits set"}', 'done', ''
          from generate_series(1, 1001) n on conflict do nothing`;
    });
    const { rows, hint } = await listed(print);
    expect(rows).toBe(1_000);
    expect(hint).toBe(more);
  });
});
