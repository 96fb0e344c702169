import { readFile } from 'node:fs/promises';
import { setTimeout as delay } from 'node:timers/promises';
import { sumPostings } from '../../dist/src/db/ledger.js';

/** Timeout: 300 ms per payout is slower than any way here; a minute more for fixed costs. */
const limitMs = (payouts) => 60_000 + payouts * 300;

/** Poll interval of the sink. It does not affect accuracy, because the sink records the webhooks' times. */
const pollIntervalMs = 200;

/** Waits until the sink has received webhooks for this many of the customer's payouts. */
async function waitForWebhooks({ sinkUrl }, customer, payouts) {
  const deadline = Date.now() + limitMs(payouts);
  for (;;) {
    const received = await (await fetch(`${sinkUrl}/${customer.name}`)).json();
    if (received.payouts >= payouts) return received;
    if (Date.now() > deadline) {
      throw new Error(`${customer.name}: ${received.payouts} of ${payouts} webhooks have come.`);
    }
    await delay(pollIntervalMs);
  }
}

/** Pause after the warm-up's last webhook, so that the end of its workflows is not measured. */
const coolMs = 1_000;

/**
 * Measures a way from the request to the last settlement and the last webhook.
 *
 * @param prepare creates the request for a number of payouts. The function it returns sends the request
 *   and resolves with additional figures when it is answered
 */
export async function timeWay({ bench, database, customer, warmup, payouts, prepare }) {
  if (warmup > 0) {
    await (await prepare(warmup))(warmup);
    await waitForWebhooks(bench, customer, warmup);
    await delay(coolMs);
  }
  const send = await prepare(payouts);
  const startedAtMs = Date.now();
  const figures = await send(payouts);
  const answeredAfterMs = Date.now() - startedAtMs;
  const received = await waitForWebhooks(bench, customer, warmup + payouts);
  const [{ settled, lastAt }] = await database`
    select count(*)::int as settled, max(settled_at) as last_at from payouts
     where account_id = ${customer.accountId} and status = 'settled'`;
  if (settled !== warmup + payouts) {
    throw new Error(`${customer.name}: ${settled} of ${warmup + payouts} payouts are settled.`);
  }
  const settledSeconds = (lastAt.getTime() - startedAtMs) / 1_000;
  const announcedSeconds = (received.lastAtMs - startedAtMs) / 1_000;
  return {
    payouts,
    startedAtMs,
    answeredAfterMs,
    settledSeconds,
    announcedSeconds,
    settledPerSecond: payouts / settledSeconds,
    announcedPerSecond: payouts / announcedSeconds,
    msAPayout: (announcedSeconds * 1_000) / payouts,
    ...figures,
  };
}

/** Workflow types started by schedules, which run all the time and are not counted. */
const schedules = new Set(['sweep', 'statement', 'refreshRates', 'retention']);

/** Workflows close right after their last webhook. Any open after this time are described one by one. */
const closeLimitMs = 20_000;

/** Counts the state transitions of all workflows started since. */
export async function countTransitions(temporal, sinceMs) {
  const query = `StartTime >= '${new Date(sinceMs).toISOString()}'`;
  const deadline = Date.now() + closeLimitMs;
  for (;;) {
    const found = [];
    for await (const workflow of temporal.workflow.list({ query, pageSize: 1_000 })) {
      if (!schedules.has(workflow.type)) found.push(workflow);
    }
    const open = found.filter(({ status }) => status.name === 'RUNNING');
    if ((found.length > 0 && open.length === 0) || Date.now() > deadline) {
      // The list contains transition counts only for closed workflows.
      const closed = found.filter(({ status }) => status.name !== 'RUNNING');
      const counts = closed.map(({ raw }) => Number(raw.stateTransitionCount));
      for (const { workflowId, runId } of open) {
        const { raw } = await temporal.workflow.getHandle(workflowId, runId).describe();
        counts.push(Number(raw.workflowExecutionInfo.stateTransitionCount));
      }
      const transitions = counts.reduce((sum, count) => sum + count, 0);
      return { workflows: found.length, transitions };
    }
    await delay(500);
  }
}

/**
 * Checks the conditions for printing figures: each payout was announced and is in the bank's journal once,
 * and the ledger sums to zero in every currency.
 *
 * @returns {Promise<{ problems: string[], duplicates: number }>}
 */
export async function check({ bench, database, customer, journal, payouts }) {
  const problems = [];
  const received = await (await fetch(`${bench.sinkUrl}/${customer.name}`)).json();
  if (received.payouts !== payouts) {
    problems.push(`${received.payouts} payouts were announced, not ${payouts}`);
  }
  const rows = await database`select id from payouts where account_id = ${customer.accountId}`;
  const facts = await countFacts(journal);
  const wrong = rows.filter(
    ({ id }) => facts.get(`transfer ${id}`) !== 1 || facts.get(`settled ${id}`) !== 1,
  );
  if (rows.length !== payouts) problems.push(`there are ${rows.length} payouts, not ${payouts}`);
  if (wrong.length > 0) {
    problems.push(`${wrong.length} payouts are not once in the bank's journal: ${wrong[0].id}`);
  }
  problems.push(...(await unbalanced(database)));
  const [{ parked }] = await database`
    select count(*)::int as parked from payouts
     where account_id = ${customer.accountId} and attention_at is not null`;
  if (parked > 0) problems.push(`${parked} payouts wait for a person`);
  return { problems, duplicates: received.duplicates };
}

/** Returns a problem for each currency in which the ledger does not sum to zero. */
export async function unbalanced(database) {
  const sums = await sumPostings(database);
  return sums
    .filter(({ sumMinor }) => sumMinor !== 0n)
    .map(({ currency, sumMinor }) => `the ledger is off by ${sumMinor} in ${currency}`);
}

/** Counts the facts in the bank's journal by type and key. */
export async function countFacts(journal) {
  const facts = new Map();
  for (const line of (await readFile(journal, 'utf8')).split('\n')) {
    if (line === '') continue;
    const { type, key } = JSON.parse(line);
    facts.set(`${type} ${key}`, (facts.get(`${type} ${key}`) ?? 0) + 1);
  }
  return facts;
}
