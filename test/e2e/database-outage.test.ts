import { setTimeout as delay } from 'node:timers/promises';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { transaction } from '../../src/db/client.js';
import { eventually } from '../assertions/eventually.js';
import { type CutLine, openCutLine } from '../fakes/cutLine.js';
import { type ApiAnswer, type ApiClient, createClient, textOf } from '../fixtures/client.js';
import { beneficiary } from '../fixtures/requestPayout.js';
import { createTestAccount, unbalancedCurrencies } from '../servers/database.js';
import { type PartName, type Processes, startProcesses } from '../servers/processes.js';

/**
 * Time limit from the last repair to the end: a sweep that finds the due payouts, then their processing.
 * That takes seconds on an idle machine, but minutes on a busy one, where the batch lane yields.
 */
const endLimitMs = 240_000;
const testLimitMs = 400_000;

let parts: Processes;
let line: CutLine;
let customer: Customer;

beforeAll(async () => {
  parts = await startProcesses({
    lineTo: async (url) => {
      line = await openCutLine(url);
      return line.url;
    },
  });
  customer = await openCustomer();
});
// Repairs what a failed test left down, so that the next test does not fail too.
beforeEach(() => parts.startAll());
afterAll(async () => {
  await parts?.remove();
  await line?.close();
});

/** The API's answer, or undefined: a process may stay frozen longer than the client waits. */
async function answerOf(request: Promise<ApiAnswer>): Promise<ApiAnswer | undefined> {
  try {
    return await request;
  } catch (error) {
    if (error instanceof Error && error.name === 'TimeoutError') return undefined;
    throw error;
  }
}

/** A customer with 10,000.00 USD that retries requests under the same key until they are accepted. */
type Customer = {
  readonly accountId: string;
  readonly client: ApiClient;
  readonly beneficiary: string;
  /** How often the API has answered with each status. */
  readonly answered: ReadonlyMap<number, number>;
  /** Resolves with the ID in the answer once the request is accepted. */
  readonly insist: (request: string, key: string, json: object) => Promise<string>;
};

async function openCustomer(): Promise<Customer> {
  const { account, apiKey } = await createTestAccount(parts.database);
  const client = createClient(parts.apiUrl, apiKey);
  const stored = textOf(await client('POST /v1/beneficiaries', { form: beneficiary }), 'id');
  const answered = new Map<number, number>();
  return {
    accountId: account.id,
    client,
    beneficiary: stored,
    answered,
    insist: (request, idempotencyKey, json) =>
      eventually(`${request} ${idempotencyKey} is accepted`, endLimitMs, async () => {
        const answer = await answerOf(client(request, { json, idempotencyKey }));
        if (answer === undefined) return undefined;
        answered.set(answer.status, (answered.get(answer.status) ?? 0) + 1);
        return answer.status < 300 ? textOf(answer, 'id') : undefined;
      }),
  };
}

const itemOf = (reference: string) => ({
  source_currency: 'USD',
  amount: 2_000,
  beneficiary: customer.beneficiary,
  reference,
});

/** Verifies that every payout of the customer settled, each paid once by the bank, and none failed. */
async function expectAllSettled(count: number): Promise<void> {
  const states = () => parts.database`
    select status, attention_reason, refusal ->> 'code' as refused, count(*)::int as count
      from payouts where account_id = ${customer.accountId} group by 1, 2, 3`;
  const settled = { status: 'settled', attentionReason: null, refused: null, count };
  await expect.poll(states, { timeout: endLimitMs, interval: 500 }).toEqual([settled]);
  const transfers = await parts.transfers();
  expect(new Set(transfers).size).toBe(transfers.length);
  expect(await unbalancedCurrencies(parts.database)).toEqual([]);
  const failed: string[] = [];
  const query = 'ExecutionStatus = "Failed" or ExecutionStatus = "TimedOut"';
  for await (const { workflowId } of parts.temporal.workflow.list({ query })) {
    failed.push(workflowId);
  }
  expect(failed).toEqual([]);
  expect([...customer.answered.keys()].filter((status) => status >= 500 && status !== 503)).toEqual(
    [],
  );
}

const rounds = 100;

it(
  `no process exits, whenever its connections are cut: ${rounds} rounds`,
  async ({ annotate }) => {
    const pidsBefore = parts.pids();
    const requests: Promise<string>[] = [];
    for (let round = 0; round < rounds; round += 1) {
      if (round % 4 === 0) {
        requests.push(customer.insist('POST /v1/payouts', `cut-${round}`, itemOf(`Cut ${round}`)));
      }
      if (round % 20 === 0) {
        const payouts = [1, 2, 3].map((n) => itemOf(`Cut ${round}, item ${n}`));
        requests.push(customer.insist('POST /v1/batches', `cut-batch-${round}`, { payouts }));
      }
      await delay(100);
      line.refuseNew(true);
      if (round % 2 === 0) line.hangUp();
      else line.reset();
      await delay(50);
      line.refuseNew(false);
    }
    const refused = (await Promise.allSettled(requests)).filter(
      ({ status }) => status === 'rejected',
    );
    expect(refused).toEqual([]);
    await annotate(`answers: ${JSON.stringify([...customer.answered])}`);
    await expectAllSettled(rounds / 4 + (rounds / 20) * 3);
    expect(parts.pids()).toEqual(pidsBefore);
  },
  testLimitMs,
);

describe('a process that was frozen inside a transaction', () => {
  /** Time by which the server ends a transaction that waits for its process; see db/client.ts. */
  const heldLimitMs = 60_000;

  /** The number of transactions that wait for their process, between two statements or within one. */
  async function countHeld(applicationName: string): Promise<number> {
    const rows = await parts.database`
      select from pg_stat_activity
       where application_name = ${applicationName} and xact_start is not null
         and wait_event_type = 'Client'`;
    return rows.length;
  }

  /**
   * Freezes a process while one of its transactions waits for `lock`, lets the server finish the
   * statement, and resumes the process after the server has ended the session.
   */
  async function freeze(
    name: PartName,
    applicationName: string,
    lock: string,
    send: () => Promise<unknown>,
  ): Promise<unknown> {
    let response: Promise<unknown> = Promise.resolve();
    await transaction(parts.database, async (sql) => {
      // The test's own transaction may be idle for long on a busy machine.
      await sql`set local idle_in_transaction_session_timeout = '90s'`;
      await sql`set local transaction_timeout = 0`;
      await sql.unsafe(lock);
      response = send();
      await eventually(`${name} waits for a lock`, 60_000, async () => {
        const waiting = await parts.database`
          select from pg_stat_activity
           where application_name = ${applicationName} and wait_event_type = 'Lock'`;
        return waiting.length > 0 ? true : undefined;
      });
      parts.signal(name, 'SIGSTOP');
    });
    const held = { timeout: heldLimitMs + 20_000, interval: 100 };
    await expect.poll(() => countHeld(applicationName), held).toBeGreaterThan(0);
    await expect.poll(() => countHeld(applicationName), held).toBe(0);
    parts.signal(name, 'SIGCONT');
    return response;
  }

  const balances = () =>
    `select from ledger_balances where account_id = '${customer.accountId}' for update`;

  it.each([
    ['worker', 'corridor-worker-single', 'POST /v1/payouts', itemOf],
    [
      'batch-worker',
      'corridor-worker-batch',
      'POST /v1/batches',
      (reference: string) => ({ payouts: [itemOf(reference)] }),
    ],
  ] as const)(
    '%s: its payouts settle, and no workflow fails',
    async (name, session, request, bodyOf) => {
      const before = await countPayouts();
      await freeze(name, session, balances(), () =>
        customer.insist(request, `frozen-${name}`, bodyOf('Frozen')),
      );
      // The next requests may get the lost connection.
      for (let n = 0; n < 5; n += 1) {
        await customer.insist(request, `after-${name}-${n}`, bodyOf(`After ${n}`));
      }
      await expectAllSettled(before + 6);
    },
    testLimitMs,
  );

  it('api: no request is answered 500', { timeout: testLimitMs }, async () => {
    const before = await countPayouts();
    await freeze('api', 'corridor-api', 'lock table idempotency_keys in share mode', () =>
      customer.insist('POST /v1/payouts', 'frozen-api', itemOf('Frozen')),
    );
    // Enough concurrent requests to use every connection of the pool.
    const reads = await Promise.all(
      Array.from({ length: 100 }, () => customer.client('GET /v1/balances')),
    );
    expect(
      reads.map(({ status }) => status).filter((status) => ![200, 503].includes(status)),
    ).toEqual([]);
    await customer.insist('POST /v1/payouts', 'after-api', itemOf('After'));
    await expectAllSettled(before + 2);
  });

  async function countPayouts(): Promise<number> {
    const [row] = await parts.database<{ count: number }[]>`
      select count(*)::int as count from payouts where account_id = ${customer.accountId}`;
    return row?.count ?? 0;
  }
});
