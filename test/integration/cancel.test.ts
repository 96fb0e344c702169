import { afterAll, beforeAll, describe, expect, it, onTestFinished, vi } from 'vitest';
import { ledgerActivities } from '../../src/activities/ledger.js';
import { operatorActivities } from '../../src/activities/operator.js';
import type { Database } from '../../src/db/client.js';
import { newId } from '../../src/db/id.js';
import { listActions } from '../../src/db/operatorActions.js';
import { requestCancellation } from '../../src/db/payouts.js';
import { createRails } from '../../src/rails/registry.js';
import { createSandboxRail } from '../../src/rails/sandbox/connector.js';
import { cancelUpdate, searchAttributes } from '../../src/workflows/messages.js';
import { eventually } from '../assertions/eventually.js';
import { expectedPostings, postingsOf } from '../assertions/postings.js';
import { silentDeliverer } from '../fakes/silentDeliverer.js';
import { attempt } from '../fixtures/attempt.js';
import { type ApiAnswer, textOf, untilStatus } from '../fixtures/client.js';
import { usualFactRules } from '../fixtures/factRules.js';
import { keyring } from '../fixtures/keyring.js';
import { command } from '../fixtures/operators.js';
import {
  historyOf,
  journalOf,
  openPayer,
  type Payer,
  rowOf,
  untilParked,
  untilSubmitted,
  wake,
} from '../fixtures/payer.js';
import { payoutActivities } from '../fixtures/payoutActivities.js';
import { rateMaximumAgeMs, requestPayout } from '../fixtures/requestPayout.js';
import { createTestAccount, unbalancedCurrencies, untilLockWaits } from '../servers/database.js';
import { startSystem, type TestSystem } from '../servers/system.js';

let system: TestSystem;

beforeAll(async () => {
  system = await startSystem({ decisionLimitMs: 5_000 });
});
afterAll(async () => {
  // Whatever the tests did, every currency must balance.
  expect(await unbalancedCurrencies(system.database)).toEqual([]);
  await system.stop();
});

const cancel = (payer: Payer, id: string, idempotencyKey?: string) =>
  payer.client(
    `POST /v1/payouts/${id}/cancel`,
    idempotencyKey === undefined ? {} : { idempotencyKey },
  );

const isReplay = ({ headers }: ApiAnswer) => headers.get('idempotent-replayed') === 'true';

/** A payout that the bank will never answer, once it is submitted. */
async function unanswered(payer: Payer): Promise<string> {
  const id = await payer.send('simulate: timeout then nothing');
  await untilSubmitted(system, id);
  return id;
}

/** Verifies a final cancellation: the hold was released once, and the bank has nothing to pay. */
async function expectCanceled(id: string): Promise<void> {
  const row = await rowOf(system, id);
  expect(row).toMatchObject({ status: 'canceled', attentionReason: null });
  const { accept, release } = expectedPostings(row);
  expect(await postingsOf(system.database, id)).toEqual({ accept, release });
  expect(await journalOf(system, id)).not.toContain('transfer');
}

/** Verifies a final settlement: the bank has paid once, and nothing was released. */
async function expectSettled(id: string): Promise<void> {
  const row = await rowOf(system, id);
  expect(row).toMatchObject({ status: 'settled', attentionReason: null });
  const { accept, settle } = expectedPostings(row);
  expect(await postingsOf(system.database, id)).toEqual({ accept, settle });
  expect(await journalOf(system, id)).toEqual(['transfer', 'settled']);
}

/** Verifies that the answer matches the outcome, and that the other outcome did not happen too. */
async function expectOneOutcome(id: string, answer: ApiAnswer): Promise<'canceled' | 'settled'> {
  // Checked before the wait, because a workflow that was not canceled might never end.
  expect([200, 409], JSON.stringify(answer.body)).toContain(answer.status);
  await system.temporal.workflow.getHandle(id).result();
  if (answer.status === 200) {
    expect(answer.body).toMatchObject({ id, status: 'canceled' });
    await expectCanceled(id);
    return 'canceled';
  }
  expect(answer).toMatchObject({ status: 409, body: { code: 'payout_not_cancelable' } });
  await expectSettled(id);
  return 'settled';
}

// Most of these wait for seconds, as the bank does not answer, so many run at the same time.
describe('a cancellation that races with the submission', () => {
  it('either cancels or comes too late, for 20 payouts at once', async () => {
    const payer = await openPayer(system);
    const outcomes = await Promise.all(
      Array.from({ length: 20 }, async (_, index) => {
        // Together they use up the account's funds, so an early release would show.
        const sending = payer.ask(`race ${index}`, { amount: '5000' });
        // Odd ones are canceled while the payout is being decided, even ones right afterwards.
        if (index % 2 === 0) await sending;
        const id = await idOf(payer, `race ${index}`);
        const outcome = await expectOneOutcome(id, await cancel(payer, id));
        expect([201, 202]).toContain((await sending).status);
        return outcome;
      }),
    );
    const paid = outcomes.filter((outcome) => outcome === 'settled').length;
    expect(await payer.balance()).toEqual({
      available: 100_000n - 5_000n * BigInt(paid),
      held: 0n,
    });
  });

  it('wins before the bank was called, and the bank never receives the payout', async () => {
    const payer = await openPayer(system);
    await system.stopWorker();
    const sending = payer.ask('never called');
    const id = await idOf(payer, 'never called');
    const update = vi.spyOn(system.temporal.workflowService, 'executeMultiOperation');
    onTestFinished(() => update.mockRestore());
    const canceled = cancel(payer, id);
    // The call has been made, and reaches the server long before the workers have started.
    await eventually('the update is sent', 10_000, () => update.mock.calls.length > 0 || undefined);
    await system.startWorker();
    expect(await expectOneOutcome(id, await canceled)).toBe('canceled');
    expect(await journalOf(system, id)).toEqual([]);
    expect(await payer.eventsOf(id)).toEqual(['payout.canceled']);
    expect([201, 202]).toContain((await sending).status);
  });

  it('asks the bank if the submission began after the row was read', async () => {
    const { account } = await createTestAccount(system.database);
    const { id } = await requestPayout(system.database, account.id);
    const rail = createSandboxRail(system.bank);
    const deps = {
      rails: createRails([rail]),
      keyring,
      rateMaximumAgeMs,
      factRules: usualFactRules,
      deliverer: silentDeliverer,
      approvalAboveMinor: 0n,
    };
    const ledger = ledgerActivities({ ...deps, database: system.worker });
    await ledger.decidePayouts({ driver: id, ids: [id], workflowAgeMs: 0 });
    const { executeCommand } = operatorActivities({ ...deps, database: submittingFirst(id) });
    await requestCancellation(system.database, id);
    const operate = () =>
      attempt(() =>
        executeCommand({ driver: id, id, actor: 'customer', action: `op_${crypto.randomUUID()}` }),
      );

    await expect(operate()).rejects.toThrow('changed meanwhile');
    expect(await rowOf(system, id)).toMatchObject({ status: 'processing' });
    expect(await journalOf(system, id)).toEqual([]);
    expect((await operate()).result).toMatchObject({ outcome: 'done' });
    await expectCanceled(id);
    expect(await journalOf(system, id)).toEqual(['voided']);
    await rail.close();
  });

  it.concurrent('wins if the bank has not received the payout and will refuse its key', async () => {
    const payer = await openPayer(system);
    const id = await unanswered(payer);
    const answer = await cancel(payer, id);
    expect(historyOf(answer)).toEqual(['pending', 'processing', 'canceled']);
    expect(await expectOneOutcome(id, answer)).toBe('canceled');
    expect(await journalOf(system, id)).toEqual(['voided']);
  });

  it.concurrent('wins though the bank has refused the voided key before it was recorded', async () => {
    const { account } = await createTestAccount(system.database);
    const { id } = await requestPayout(system.database, account.id);
    const rail = createSandboxRail(system.bank);
    const activities = payoutActivities(system.worker, rail, 0n);
    const own = { driver: id, ids: [id] };
    await attempt(() => activities.decidePayouts({ ...own, workflowAgeMs: 0 }));
    // The first half of a cancellation, whose second half is late.
    expect(await rail.voidKey(id)).toBe('voided');
    await expect(attempt(() => activities.submitPayouts(own))).rejects.toThrow(
      'its key was voided',
    );
    await requestCancellation(system.database, id);
    const { result } = await attempt(() =>
      activities.executeCommand({ driver: id, id, actor: 'customer', action: 'op_late' }),
    );
    expect(result).toMatchObject({ outcome: 'done' });
    await expectCanceled(id);
    await rail.close();
  });

  it.concurrent('loses if the bank has accepted the payout, even if its answer was lost', async () => {
    const payer = await openPayer(system);
    const id = await payer.send('simulate: timeout then settle');
    await eventually('the bank has the transfer', 10_000, async () =>
      (await journalOf(system, id)).includes('transfer') ? true : undefined,
    );
    expect(await expectOneOutcome(id, await cancel(payer, id))).toBe('settled');
  });
});

/** A database on which a submission begins just before each transaction. */
function submittingFirst(id: string): Database {
  return new Proxy(system.worker, {
    get: (database, name) => {
      if (name !== 'begin') return Reflect.get(database, name);
      return async (...args: Parameters<Database['begin']>) => {
        await database`
          update payouts set submit_started_at = coalesce(submit_started_at, now()),
                             last_sent_at = coalesce(last_sent_at, now())
           where id = ${id}`;
        return database.begin(...args);
      };
    },
  });
}

/** The ID of a payout whose request may not have been answered yet. */
function idOf({ accountId }: Payer, reference: string): Promise<string> {
  return eventually(`${reference} is recorded`, 10_000, async () => {
    const rows = await system.database<{ id: string }[]>`
      select id from payouts where account_id = ${accountId} and reference = ${reference}`;
    return rows[0]?.id;
  });
}

describe('a cancellation', () => {
  it.concurrent('of a payout that does not exist and of another account’s gets the same 404', async () => {
    const [owner, stranger] = [await openPayer(system), await openPayer(system)];
    const id = await unanswered(owner);
    const absent = newId('payout');
    const [foreign, missing] = [await cancel(stranger, id), await cancel(stranger, absent)];
    expect(foreign).toMatchObject({ status: 404, body: { code: 'not_found', received: id } });
    const { request_id: _one, ...forForeign } = foreign.body;
    const { request_id: _other, ...forMissing } = missing.body;
    expect(JSON.stringify(forForeign).replaceAll(id, absent)).toBe(JSON.stringify(forMissing));
    expect(await rowOf(system, id)).toMatchObject({ status: 'processing' });
    expect((await cancel(owner, id)).status).toBe(200);
    // The refusal to a stranger did not bind the key for the owner's object either.
    expect((await cancel(stranger, id, 'a-key')).status).toBe(404);
    expect(isReplay(await cancel(stranger, absent, 'a-key'))).toBe(false);
  });

  it.concurrent('repeated with its Idempotency-Key gets the same answer and releases once', async () => {
    const payer = await openPayer(system);
    const id = await unanswered(payer);
    const key = crypto.randomUUID();
    const answers = await Promise.all([1, 2, 3].map(() => cancel(payer, id, key)));
    answers.push(await cancel(payer, id, key));
    for (const answer of answers) {
      expect(answer).toMatchObject({ status: 200, body: { id, status: 'canceled' } });
    }
    expect(answers.filter(isReplay)).toHaveLength(3);
    await expectCanceled(id);
    const other = await unanswered(payer);
    expect(await cancel(payer, other, key)).toMatchObject({
      status: 422,
      body: { code: 'idempotency_key_reused' },
    });
    expect(await rowOf(system, other)).toMatchObject({ status: 'processing' });
    expect(await payer.balance()).toEqual({ available: 90_000n, held: 10_000n });
    await cancel(payer, other);
  });

  it.concurrent('that came too late is refused again when it is repeated with its key', async () => {
    const payer = await openPayer(system);
    const id = await payer.send('an ordinary payout');
    await untilStatus(payer.client, id, 'settled');
    const key = crypto.randomUUID();
    const [first, second] = [await cancel(payer, id, key), await cancel(payer, id, key)];
    for (const answer of [first, second]) {
      expect(answer).toMatchObject({
        status: 409,
        body: { code: 'payout_not_cancelable', received: 'settled', payout: id },
      });
    }
    expect([isReplay(first), isReplay(second)]).toEqual([false, true]);
    await expectSettled(id);
  });

  it.concurrent('is refused once the bank may have forgotten the key, and releases nothing', async () => {
    const payer = await openPayer(system);
    const id = await unanswered(payer);
    await system.database`
      update payouts set submit_started_at = submit_started_at - interval '25 hours'
       where id = ${id}`;
    await wake(system, id);
    await untilParked(system, id);
    expect(await cancel(payer, id)).toMatchObject({
      status: 409,
      body: { code: 'payout_not_cancelable', received: 'processing' },
    });
    expect(await journalOf(system, id)).toEqual([]);
    expect(await payer.balance()).toEqual({ available: 90_000n, held: 10_000n });
  });

  it.concurrent('ends a parked payout, which then needs no attention', async () => {
    const payer = await openPayer(system);
    const id = await unanswered(payer);
    await system.database`
      update payouts set attention_reason = 'unexpected_failure', attention_detail = 'a bug',
             attention_at = now() where id = ${id}`;
    await wake(system, id);
    await untilParked(system, id);
    expect(await expectOneOutcome(id, await cancel(payer, id))).toBe('canceled');
    const { typedSearchAttributes } = await system.temporal.workflow.getHandle(id).describe();
    expect(typedSearchAttributes.get(searchAttributes.needsAttention) ?? false).toBe(false);
    expect(await payer.balance()).toEqual({ available: 100_000n, held: 0n });
  });

  it('is refused before the decision if the bank has reported on it', async () => {
    const payer = await openPayer(system);
    await system.stopWorker();
    const id = textOf(await payer.ask('undecided'), 'id');
    await system.database`
      update payouts set attention_reason = 'contradiction', attention_detail = '',
             attention_at = now() where id = ${id}`;
    await system.startWorker();
    expect(await cancel(payer, id)).toMatchObject({
      status: 409,
      body: { received: 'pending', detail: expect.stringContaining('is investigating') },
    });
    expect(await payer.balance()).toEqual({ available: 100_000n, held: 0n });
  });
});

describe('in Temporal', () => {
  const button = { operator: 'temporal-ui', command: { kind: 'cancel' }, outcome: 'refused' };

  it.concurrent('neither a cancel request nor the cancel update cancels without a customer’s request', async () => {
    const payer = await openPayer(system);
    const id = await unanswered(payer);
    const handle = system.temporal.workflow.getHandle(id);
    expect(await handle.executeUpdate(cancelUpdate)).toMatchObject({ outcome: 'refused' });
    await handle.cancel();
    // The button in the Temporal UI leaves an audit line nevertheless.
    await eventually('the cancel request in Temporal is refused', 20_000, async () => {
      const lines = await listActions(system.database, id);
      return lines.length > 0 ? true : undefined;
    });
    expect(await rowOf(system, id)).toMatchObject({ status: 'processing' });
    const canceled = await cancel(payer, id);
    expect(canceled.body).toMatchObject({ status: 'canceled', status_reason: 'canceled' });
    // The workflow completes with the payout's status, rather than as canceled.
    await expect(handle.result()).resolves.toBe('canceled');
    expect((await handle.describe()).status.name).toBe('COMPLETED');
    await expectCanceled(id);
    expect(await payer.eventsOf(id)).toEqual(['payout.canceled']);
    expect(await listActions(system.database, id)).toMatchObject([
      button,
      { operator: payer.accountId, command: { kind: 'cancel' }, outcome: 'done' },
    ]);
  });

  it.concurrent('a cancel request for a payout that the bank has accepted changes nothing', async () => {
    const payer = await openPayer(system);
    const id = await payer.send('simulate: delay 1s');
    await untilStatus(payer.client, id, 'sent');
    const handle = system.temporal.workflow.getHandle(id);
    await handle.cancel();
    await expect(handle.result()).resolves.toBe('settled');
    await expectSettled(id);
  });

  it.concurrent('a cancel request that came too late does not block operator commands', async () => {
    const payer = await openPayer(system);
    const id = await payer.send('simulate: never settle');
    await untilStatus(payer.client, id, 'sent');
    await system.temporal.workflow.getHandle(id).cancel();
    const answers = await Promise.all(Array.from({ length: 5 }, () => cancel(payer, id)));
    expect(answers.map(({ status }) => status)).toEqual([409, 409, 409, 409, 409]);
    // Refused at once: a customer could fill the audit log with cancellations that nothing can execute.
    const actors = (await listActions(system.database, id)).map(({ operator }) => operator);
    expect(actors).not.toContain(payer.accountId);
    await system.database`update payouts set settle_by = now() where id = ${id}`;
    await wake(system, id);
    await untilParked(system, id);
    const result = await command(system, id, { kind: 'markSettled', evidence: 'MT103 seen' });
    expect(result).toMatchObject({ outcome: 'done' });
    await expect(system.temporal.workflow.getHandle(id).result()).resolves.toBe('settled');
  });

  it('cancellations that wait for a row leave connections to other accounts', async () => {
    const [payer, other] = [await openPayer(system), await openPayer(system)];
    const id = await unanswered(payer);
    const cancels: Promise<unknown>[] = [];
    await system.database.begin(async (sql) => {
      await sql`select from payouts where id = ${id} for update`;
      for (let n = 0; n < 30; n += 1) cancels.push(cancel(payer, id));
      await untilLockWaits(system.database, 'cancellations wait', 20_000, 6);
      expect(await other.client('GET /v1/balances')).toMatchObject({ status: 200 });
      // Of the API's eight connections, the others stay free, however many cancellations come.
      const waiting = await system.database`
        select from pg_stat_activity
         where datname = current_database() and wait_event_type = 'Lock'`;
      expect(waiting.count).toBeLessThanOrEqual(6);
    });
    await Promise.all(cancels);
  });

  it('a terminated payout can still be canceled', async () => {
    const payer = await openPayer(system);
    const id = await unanswered(payer);
    await system.temporal.workflow.getHandle(id).terminate('an accident');
    const answer = await cancel(payer, id);
    expect(textOf(answer, 'status')).toBe('canceled');
    expect(await expectOneOutcome(id, answer)).toBe('canceled');
    expect(await payer.balance()).toEqual({ available: 100_000n, held: 0n });
  });
});
