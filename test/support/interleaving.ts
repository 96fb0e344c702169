import { Client, Connection } from '@temporalio/client';
import { batchActivities } from '../../src/activities/batch.js';
import { chunkActivities } from '../../src/activities/chunk.js';
import { ledgerActivities } from '../../src/activities/ledger.js';
import { type OperateInput, operatorActivities } from '../../src/activities/operator.js';
import { railActivities } from '../../src/activities/rail.js';
import { cancelBatch, insertBatch, pauseBatch, resumeBatch } from '../../src/db/batches.js';
import { insertBeneficiary } from '../../src/db/beneficiaries.js';
import { handOverItems, takeOver } from '../../src/db/chunks.js';
import { type Database, exactlyOne, transaction } from '../../src/db/client.js';
import { newId } from '../../src/db/id.js';
import { storeRailEvents } from '../../src/db/inbox.js';
import { insertRequest } from '../../src/db/operatorActions.js';
import { insertPayout, type LockedPayout, lockPayouts } from '../../src/db/payouts.js';
import { currentRates } from '../../src/db/rates.js';
import { type Chunk, chunkDriver } from '../../src/domain/batch.js';
import type { OperatorCommand, OperatorResult } from '../../src/domain/operator.js';
import { attentionReasons, isFinal, usualFactRules } from '../../src/domain/payout.js';
import { type RailEvent, reportToJson } from '../../src/domain/railReport.js';
import type { Rail } from '../../src/rails/rail.js';
import { createRails } from '../../src/rails/registry.js';
import { attempt, drowsy, Hold } from './attempt.js';
import { createTestAccount } from './database.js';
import { beneficiary, livePayout } from './requestPayout.js';
import {
  type BankAct,
  type Fate,
  type LookupManner,
  type RailCall,
  ScriptedBank,
  type SubmitManner,
  type VoidManner,
} from './scriptedRail.js';
import type { VirtualTime } from './virtualClock.js';

/** How one attempt of an activity fares: at the rail, and as a process. */
export type Fortune = {
  readonly submit: SubmitManner;
  readonly lookup: LookupManner;
  readonly void: VoidManner;
  /** Where it stands still: at the answer to a call, or after so many statements; or nowhere. */
  readonly stopsAt: RailCall | number | null;
  /** Whether what stands still is dead: it never goes on. */
  readonly dies: boolean;
};

export const goodFortune: Fortune = {
  submit: 'taken',
  lookup: 'true',
  void: 'true',
  stopsAt: null,
  dies: false,
};

export const commandKinds = [
  'cancel',
  'cancelButton',
  'release',
  'releaseOnStatement',
  'retryNow',
  'markSettled',
  'extendDeadline',
] as const;
export type CommandKind = (typeof commandKinds)[number];

/** Which day an operator gives as evidence; all but the first are false or too early. */
export const evidenceDays = ['deadline', 'eve', 'sent', 'yesterday', 'today'] as const;
export type EvidenceDay = (typeof evidenceDays)[number];

/** What happens to one payout. */
export type Step =
  | {
      readonly do: 'drive';
      /** A retry of an activity goes on with its call, whatever has come into the inbox. */
      readonly isRetry: boolean;
      readonly fortune: Fortune;
    }
  | {
      readonly do: 'ask';
      readonly command: CommandKind;
      readonly day: EvidenceDay;
      readonly fortune: Fortune;
    }
  | { readonly do: 'repeat'; readonly fortune: Fortune }
  | { readonly do: 'bank'; readonly act: BankAct }
  | { readonly do: 'tell'; readonly isLast: boolean; readonly again: 'no' | 'same' | 'new' }
  | { readonly do: 'resume' }
  | { readonly do: 'park' }
  | Wait;

/** Time goes by for all of them, whoever's step it is. */
type Wait = { readonly do: 'wait'; readonly ms: number };

/** What happens to all of them. */
export type WorldStep =
  | Wait
  | { readonly do: 'chunk'; readonly act: 'submit' | 'poll'; readonly fortune: Fortune }
  | { readonly do: 'batch'; readonly act: 'cancel' | 'pause' | 'resume' | 'handOver' };

export type Script = {
  readonly closesAfterDays: number;
  /** One for each payout; the first ones are items of one batch, the others stand alone. */
  readonly payouts: readonly {
    readonly fate: Fate;
    readonly isGarbled: boolean;
    /** How many moments pass before each step: what puts the steps of all into one order. */
    readonly steps: readonly { readonly after: number; readonly step: Step }[];
  }[];
  readonly world: readonly { readonly after: number; readonly step: WorldStep }[];
};

const batchItems = 14;
const fundsMinor = 100_000_000n;
const rateMaximumAgeMs = 100 * 365 * 24 * 60 * 60 * 1000;
const hourMs = 60 * 60 * 1000;
const dayMs = 24 * hourMs;

export type Answered = OperatorResult & {
  readonly payoutId: string;
  readonly command: OperatorCommand;
  readonly action: string;
  /** Whether it stands in the audit, where a repeat finds it. */
  readonly isAudited: boolean;
};

type Asked = { readonly input: OperateInput; readonly command: OperatorCommand };

type Held = {
  readonly payoutId: string | null;
  readonly hold: Hold;
  readonly dies: boolean;
  readonly end: Promise<void>;
};

/** One run of a script: an account, its payouts, a bank of its own, and what was answered. */
export class Interleaving {
  readonly bank: ScriptedBank;
  readonly ids: string[] = [];
  readonly answers: Answered[] = [];
  readonly asked: Asked[] = [];
  readonly bugs: unknown[] = [];
  /** What happened to which payout, for whoever reads a counterexample; -1 is all of them. */
  readonly trace: { readonly index: number; readonly text: string }[] = [];
  isBatchCanceled = false;
  accountId = '';
  batchId = '';

  readonly #time: VirtualTime;
  readonly #script: Script;
  readonly #temporal: Client;
  readonly #held: Held[] = [];
  #actions = 0;

  constructor(time: VirtualTime, temporal: Client, script: Script) {
    this.#time = time;
    this.#script = script;
    this.#temporal = temporal;
    this.bank = new ScriptedBank({ closesAfterMs: script.closesAfterDays * dayMs });
  }

  /** Runs the script, lets the bank finish what it has, and tells everything. */
  async run(): Promise<void> {
    await this.#begin();
    for (const { index, step } of inOrder(this.#script)) {
      const id = this.ids[index] ?? '';
      this.trace.push({ index: step.do === 'wait' ? -1 : index, text: JSON.stringify(step) });
      if (isWorldStep(step)) await this.#passWorld(step);
      else await this.#pass(id, step);
    }
    await this.#finish();
  }

  #note(id: string, text: string): void {
    this.trace.push({ index: this.ids.indexOf(id), text: `  ${text}` });
  }

  get #chunk(): Chunk {
    return { batchId: this.batchId, number: 0 };
  }

  get #database(): Database {
    return this.#time.database;
  }

  async #begin(): Promise<void> {
    await this.#time.beginAnew();
    const { account } = await createTestAccount(this.#database, { funds: { USD: fundsMinor } });
    this.accountId = account.id;
    this.batchId = newId('batch');
    await transaction(this.#database, (sql) => this.#request(sql));
    for (const [index, { fate, isGarbled }] of this.#script.payouts.entries()) {
      const id = this.ids[index] ?? '';
      this.bank.fates.set(id, fate);
      if (isGarbled) this.bank.garbled.add(id);
    }
    const { acceptChunk, decidePayouts } = this.#activities(goodFortune, undefined);
    await attempt(() => acceptChunk({ ...this.#chunk, workflowAgeMs: 0 }));
    await Promise.all(
      // The last one stays pending: a step may find it so.
      this.ids
        .slice(batchItems, -1)
        .map((id) => attempt(() => decidePayouts({ driver: id, ids: [id], workflowAgeMs: 0 }))),
    );
  }

  async #request(sql: Parameters<typeof insertPayout>[0]): Promise<void> {
    const { accountId, batchId } = this;
    const beneficiaryId = newId('beneficiary');
    await insertBeneficiary(sql, { id: beneficiaryId, accountId, details: beneficiary });
    // In their order, by which rows are locked: the same script does the same each time.
    this.ids.push(...this.#script.payouts.map(() => newId('payout')).sort());
    const payouts = this.ids.map((id, index) => ({
      id,
      accountId,
      beneficiaryId,
      // Every fifth has the amount of the one before: statements are read by amounts as well.
      amount: BigInt(2_000 + 37 * (index % 5 === 4 ? index - 1 : index)),
    }));
    const rates = await currentRates(sql, rateMaximumAgeMs);
    await insertBatch(sql, {
      id: batchId,
      accountId,
      mode: 'best_effort',
      rates,
      items: payouts.slice(0, batchItems).map((payout, index) => ({
        index,
        refusal: null,
        payout: { ...livePayout, ...payout, driver: chunkDriver(this.#chunk) },
      })),
    });
    for (const payout of payouts.slice(batchItems)) {
      await insertPayout(sql, { ...livePayout, ...payout, driver: payout.id });
    }
  }

  #activities(fortune: Fortune, hold: Hold | undefined): Activities {
    const { stopsAt } = fortune;
    const rail: Rail = this.bank.rail({
      ...fortune,
      hold: async (call) => {
        if (call === stopsAt) await hold?.wait();
      },
    });
    const database =
      hold !== undefined && typeof stopsAt === 'number'
        ? drowsy(this.#time.worker, stopsAt, hold)
        : this.#time.worker;
    return activitiesOn(database, rail, this.#temporal);
  }

  /** Runs one attempt until it ends or stands still; what stands still goes on later, or never. */
  async #attempt<T>(
    payoutId: string | null,
    fortune: Fortune,
    work: (activities: Activities) => Promise<T>,
    take: (result: T) => void = () => undefined,
  ): Promise<void> {
    const hold = new Hold();
    const activities = this.#activities(fortune, hold);
    const end = attempt(() => work(activities)).then(take, (error: unknown) => {
      this.#note(payoutId ?? '', String(error));
      if (!isExpected(error)) this.bugs.push(error);
    });
    if ((await Promise.race([end, hold.reached])) === 'held') {
      this.#note(payoutId ?? '', fortune.dies ? 'dies there' : 'stands still');
      this.#held.push({ payoutId, hold, dies: fortune.dies, end });
    }
  }

  /** What cannot be done to a payout as it stands leaves its workflow a turn instead. */
  async #pass(id: string, step: Step): Promise<void> {
    const drive = () =>
      this.#drive(
        id,
        'fortune' in step ? step.fortune : goodFortune,
        step.do === 'drive' && step.isRetry,
      );
    switch (step.do) {
      case 'drive':
        return drive();
      case 'ask':
        return (await this.#isHeard(id, step.command)) ? this.#ask(id, step) : drive();
      case 'repeat': {
        const last = this.asked.findLast(({ input }) => input.id === id);
        return last === undefined ? drive() : this.#operate(last, step.fortune);
      }
      case 'bank':
        return this.bank.act(id, step.act) ? undefined : drive();
      case 'tell':
        return (await this.#tell(id, step)) ? undefined : drive();
      case 'resume': {
        const held = this.#held.find(({ payoutId, dies }) => payoutId === id && !dies);
        return held === undefined ? drive() : this.#resume(held);
      }
      case 'park':
        return this.#park(id, 'unexpected_failure');
      case 'wait':
        return this.#wait(step.ms);
    }
  }

  /** Whether there is somebody to answer, and not only to say that it is too late. */
  async #isHeard(id: string, command: CommandKind): Promise<boolean> {
    const { status, attentionReason } = await this.rowOf(id);
    const isOpen = status === 'pending' || status === 'processing';
    return (
      attentionReason !== null || command === 'cancelButton' || (command === 'cancel' && isOpen)
    );
  }

  /** What the workflow of a payout does next, or that of its chunk. */
  async #drive(id: string, fortune: Fortune, isRetry = false): Promise<void> {
    const row = await this.rowOf(id);
    const { driver, status } = row;
    const who = { driver, ids: [id] };
    const isItsOwn = driver === id;
    if (row.hasUnprocessedEvents && !isRetry)
      return this.#attempt(id, fortune, (a) => a.applyRailEvents(who));
    if (row.attentionReason !== null || isFinal(status)) return undefined;
    if (status === 'pending') {
      return this.#attempt(id, fortune, (a) => a.decidePayouts({ ...who, workflowAgeMs: 0 }));
    }
    if (status === 'processing') return this.#attempt(id, fortune, (a) => a.submitPayouts(who));
    const isOver = Number(row.settleInMs ?? 0n) <= 0;
    if (!isItsOwn && isOver) return this.#handOver('stuck');
    if (isOver) return this.#park(id, 'settle_by_passed');
    return isItsOwn
      ? this.#attempt(id, fortune, (a) => a.pollRail({ payoutId: id }))
      : this.#attempt(id, fortune, (a) => a.pollChunk(this.#chunk));
  }

  async #park(id: string, reason: 'unexpected_failure' | 'settle_by_passed'): Promise<void> {
    const { driver, status, attentionReason } = await this.rowOf(id);
    // A workflow that has nothing to do any more cannot fail at it.
    if (driver !== id || isFinal(status) || attentionReason !== null) return;
    const detail = attentionReasons[reason];
    await this.#attempt(id, goodFortune, (a) => a.parkPayout({ driver, id, reason, detail }));
  }

  async #handOver(scope: 'stuck' | 'unanswered'): Promise<void> {
    await transaction(this.#database, (sql) => handOverItems(sql, this.#chunk, scope));
  }

  async #ask(id: string, { command, day, fortune }: Extract<Step, { do: 'ask' }>): Promise<void> {
    const row = await this.rowOf(id);
    if (row.driver !== id) await takeOver(this.#database, id);
    this.#actions += 1;
    const asked = commandOf(command, row, day);
    const isOperators = asked.kind !== 'cancel';
    const request = { operator: 'grace', reason: 'a test', command: asked };
    const input: OperateInput = {
      driver: id,
      id,
      actor: isOperators ? 'operator' : command === 'cancel' ? 'customer' : 'temporal_ui',
      action: isOperators
        ? await insertRequest(this.#database, id, request)
        : `op_${this.accountId}_${this.#actions}`,
    };
    this.asked.push({ input, command: asked });
    await this.#operate({ input, command: asked }, fortune);
  }

  #operate({ input, command }: Asked, fortune: Fortune): Promise<void> {
    const { id: payoutId, action } = input;
    return this.#attempt(
      payoutId,
      fortune,
      (a) => a.executeCommand(input),
      ({ result }) => {
        this.#note(payoutId, `answered ${result.outcome}: ${result.detail}`);
        const isAudited = result.action !== null;
        this.answers.push({ ...result, payoutId, command, action, isAudited });
      },
    );
  }

  async #tell(id: string, { isLast, again }: Extract<Step, { do: 'tell' }>): Promise<boolean> {
    const news = this.bank.take(id, isLast);
    if (news === undefined) return false;
    this.#note(id, `told ${JSON.stringify(reportToJson(news.report))}`);
    await storeRailEvents(this.#database, 'sandbox', [news]);
    if (again === 'no') return true;
    const eventId = again === 'same' ? news.id : `${news.id}-again`;
    await storeRailEvents(this.#database, 'sandbox', [{ ...news, id: eventId }]);
    return true;
  }

  async #resume(held: Held): Promise<void> {
    this.#held.splice(this.#held.indexOf(held), 1);
    held.hold.open();
    await held.end;
  }

  async #passWorld(step: WorldStep): Promise<void> {
    switch (step.do) {
      case 'wait':
        return this.#wait(step.ms);
      case 'chunk':
        return this.#attempt(null, step.fortune, (a) =>
          step.act === 'submit' ? a.submitChunk(this.#chunk) : a.pollChunk(this.#chunk),
        );
      case 'batch':
        return this.#passBatch(step.act);
    }
  }

  async #passBatch(act: Extract<WorldStep, { do: 'batch' }>['act']): Promise<void> {
    switch (act) {
      case 'cancel':
        this.isBatchCanceled = true;
        await cancelBatch(this.#database, this.batchId);
        return this.#attempt(null, goodFortune, (a) => a.cancelChunk(this.#chunk));
      case 'pause':
        await pauseBatch(this.#database, this.batchId);
        return undefined;
      case 'resume':
        await resumeBatch(this.#database, this.batchId);
        return undefined;
      case 'handOver':
        return this.#handOver('unanswered');
    }
  }

  async #wait(ms: number): Promise<void> {
    await this.#time.advance(ms);
    this.bank.pass();
  }

  rowsOf(ids: readonly string[]): Promise<readonly LockedPayout[]> {
    return lockPayouts(this.#database, null, ids);
  }

  async rowOf(id: string): Promise<LockedPayout> {
    return exactlyOne((await this.rowsOf([id]))[0]);
  }

  /** Everybody comes back, the bank does what it has taken, and everything is told. */
  async #finish(): Promise<void> {
    this.#note('', 'the end');
    for (const held of [...this.#held]) if (!held.dies) await this.#resume(held);
    await resumeBatch(this.#database, this.batchId);
    // Arrival, deadline, and one look more at what the last one has left.
    for (const ms of [hourMs, 6 * dayMs, 2 * dayMs]) await this.#settleDown(ms);
    // People who look for money that is not theirs to release, where the bank has paid it late.
    for (const row of await this.rowsOf(this.ids)) {
      if (row.attentionReason === null || isFinal(row.status)) continue;
      const step = { do: 'ask', command: 'releaseOnStatement', fortune: goodFortune } as const;
      await this.#ask(row.id, { ...step, day: 'deadline' });
    }
    await this.#settleDown(6 * dayMs);
  }

  /** Time goes by, in which the bank finishes and each payout comes to its end or to a person. */
  async #settleDown(ms: number): Promise<void> {
    await this.#wait(ms);
    const news = this.bank.takeAll();
    if (news.length > 0) await storeRailEvents(this.#database, 'sandbox', news);
    await this.#driveAll(news);
  }

  async #driveAll(news: readonly RailEvent[]): Promise<void> {
    const rows = await this.rowsOf(this.ids);
    const byDriver = new Map<string, string[]>();
    const told = new Set(news.map(({ key }) => key));
    for (const { id, driver } of rows.filter(
      (row) => row.hasUnprocessedEvents || told.has(row.id),
    )) {
      byDriver.set(driver, [...(byDriver.get(driver) ?? []), id]);
    }
    for (const [driver, ids] of byDriver) {
      await this.#attempt(null, goodFortune, (a) => a.applyRailEvents({ driver, ids }));
    }
    const chunk = chunkDriver(this.#chunk);
    const isOpen = (row: LockedPayout) => row.attentionReason === null && !isFinal(row.status);
    const open = (await this.rowsOf(this.ids)).filter(isOpen);
    if (open.some(({ driver, status }) => driver === chunk && status === 'processing')) {
      await this.#attempt(null, goodFortune, (a) => a.submitChunk(this.#chunk));
    }
    await this.#handOver('stuck');
    for (const row of open) if (row.driver !== chunk) await this.#drive(row.id, goodFortune);
  }
}

type Activities = ReturnType<typeof activitiesOn>;

/** The real activities, on one connection of a rail and one view of the database. */
export function activitiesOn(database: Database, rail: Rail, temporal: Client) {
  const deps = {
    database,
    rails: createRails([rail]),
    rateMaximumAgeMs,
    factRules: usualFactRules,
    // Nothing here is about a second person.
    approvalAboveMinor: 1_000_000_000n,
    temporal,
  };
  return {
    ...ledgerActivities(deps),
    ...railActivities(deps),
    ...batchActivities(deps),
    ...chunkActivities(deps),
    ...operatorActivities(deps),
  };
}

/** A client that nobody answers: what should be woken has to be due as well. */
export function absentTemporal(): Client {
  return new Client({ connection: Connection.lazy({ address: '127.0.0.1:1' }) });
}

function isWorldStep(step: Step | WorldStep): step is WorldStep {
  return step.do === 'wait' || step.do === 'chunk' || step.do === 'batch';
}

/** The steps of all in the one order that their moments give; -1 is the world. */
function inOrder({ payouts, world }: Script) {
  const timed = [...payouts.map(({ steps }) => steps), world].flatMap((steps, index) => {
    let at = 0;
    return steps.map(({ after, step }) => {
      at += after;
      return { at, index: index === payouts.length ? -1 : index, step };
    });
  });
  return timed.sort((a, b) => a.at - b.at || a.index - b.index);
}

function commandOf(kind: CommandKind, row: LockedPayout, day: EvidenceDay): OperatorCommand {
  switch (kind) {
    case 'cancel':
    case 'cancelButton':
      return { kind: 'cancel' };
    case 'release':
      return { kind: 'failAndRelease', statementDate: null };
    case 'releaseOnStatement':
      return { kind: 'failAndRelease', statementDate: dayOf(day, row) };
    case 'retryNow':
      return { kind };
    case 'markSettled':
      return { kind, evidence: 'MT103 seen' };
    case 'extendDeadline':
      return { kind, until: new Date(Date.now() + 2 * dayMs).toISOString() };
  }
}

function dayOf(day: EvidenceDay, row: LockedPayout): string {
  const settleByMs = row.settleBy?.getTime() ?? Date.now();
  const times: Readonly<Record<EvidenceDay, number>> = {
    deadline: settleByMs,
    eve: settleByMs - dayMs,
    sent: row.submitStartedAt?.getTime() ?? Date.now(),
    yesterday: Date.now() - dayMs,
    today: Date.now(),
  };
  return new Date(times[day]).toISOString().slice(0, 10);
}

/** What a bank, a lost race or a retry may bring about; anything else is a bug. */
function isExpected(error: unknown): boolean {
  if (!(error instanceof Error)) return false;
  if ('type' in error && error.type === 'NotYet') return true;
  // Two attempts of one command that both went on: the second has written nothing.
  if (error.message.includes('operator_actions_pkey')) return true;
  return /^The (connection broke|look-up cannot|void did not)/.test(error.message);
}
