import { EventEmitter, once } from 'node:events';
import type { Activities } from '../../src/activities/index.js';
import { newId } from '../../src/db/id.js';
import { type BatchMode, type ChunkCounts, isOpen } from '../../src/domain/batch.js';

export type BatchActivities = Pick<
  Activities,
  | 'readBatch'
  | 'decideBatch'
  | 'acceptChunk'
  | 'cancelChunk'
  | 'closeEmptyBatch'
  | 'submitChunk'
  | 'applyChunkEvents'
  | 'pollChunk'
  | 'suspendChunk'
  | 'handOverChunk'
>;

type Name = keyof BatchActivities;

const nothing: ChunkCounts = {
  pending: 0,
  unsent: 0,
  unanswered: 0,
  overdue: 0,
  sent: 0,
  stuck: 0,
};

/** The counts of a chunk with only these items open. */
export function chunkCounts(open: Partial<ChunkCounts> = {}): ChunkCounts {
  return { ...nothing, ...open };
}

/**
 * A batch of three chunks without a database or a rail. The state of its chunks is a value in memory.
 * The activities change it as the real ones change the ledger, unless a test overrides them.
 */
export class ScriptedBatch {
  readonly batchId = newId('batch');
  readonly activities: BatchActivities;
  /** The current counts, which all chunks share. */
  current: ChunkCounts = nothing;
  /** The counts that result from each event in the inbox, in order. */
  readonly inbox: ChunkCounts[] = [];
  readonly #calls: { readonly name: Name; readonly input: unknown }[] = [];
  readonly #called = new EventEmitter();

  constructor(does: Partial<BatchActivities> = {}) {
    const all = { ...this.#decisions(), ...this.#chunk(), ...does };
    this.activities = {
      readBatch: this.#recorded('readBatch', all.readBatch),
      decideBatch: this.#recorded('decideBatch', all.decideBatch),
      acceptChunk: this.#recorded('acceptChunk', all.acceptChunk),
      cancelChunk: this.#recorded('cancelChunk', all.cancelChunk),
      closeEmptyBatch: this.#recorded('closeEmptyBatch', all.closeEmptyBatch),
      submitChunk: this.#recorded('submitChunk', all.submitChunk),
      applyChunkEvents: this.#recorded('applyChunkEvents', all.applyChunkEvents),
      pollChunk: this.#recorded('pollChunk', all.pollChunk),
      suspendChunk: this.#recorded('suspendChunk', all.suspendChunk),
      handOverChunk: this.#recorded('handOverChunk', all.handOverChunk),
    };
  }

  /** Every attempt of every activity, in order. */
  get names(): readonly Name[] {
    return this.#calls.map(({ name }) => name);
  }

  /** The inputs of an activity's attempts, in order. */
  inputsOf(name: Name): readonly unknown[] {
    return this.#calls.filter((call) => call.name === name).map(({ input }) => input);
  }

  countOf(name: Name): number {
    return this.inputsOf(name).length;
  }

  /** Resolves at the next call of the activity. */
  async nextCall(name: Name): Promise<void> {
    await once(this.#called, name);
  }

  /** The counts that a step returns: the current ones, with any overrides of the test. */
  counts(open: Partial<ChunkCounts> = {}): ChunkCounts {
    return { ...this.current, ...open };
  }

  /** A batch is over when none of its chunks has open items. */
  plan(mode: BatchMode) {
    const isOver = !isOpen(this.current);
    const progress = isOver ? 'all of it is over' : 'some of it is open';
    return { chunks: 3, mode, isOver, isUndecided: false, progress };
  }

  #decisions() {
    return {
      readBatch: async () => this.plan('best_effort'),
      decideBatch: async () => undefined,
      acceptChunk: async () => this.counts(),
      cancelChunk: async () => undefined,
      closeEmptyBatch: async () => undefined,
    };
  }

  #chunk() {
    return {
      submitChunk: async () => {
        const { unsent, sent } = this.current;
        this.current = { ...this.current, unsent: 0, sent: sent + unsent };
        return this.counts();
      },
      applyChunkEvents: async () => {
        this.current = this.inbox.shift() ?? this.current;
        return this.counts();
      },
      pollChunk: async () => this.counts(),
      suspendChunk: async () => this.inbox.length === 0,
      handOverChunk: async ({ scope }: { readonly scope: 'stuck' | 'unanswered' | 'all' }) => {
        const gone = scope === 'unanswered' ? { stuck: 0, unanswered: 0 } : { stuck: 0 };
        this.current = scope === 'all' ? nothing : { ...this.current, ...gone };
        return this.counts();
      },
    };
  }

  #recorded<I, O>(name: Name, does: (input: I) => Promise<O>): (input: I) => Promise<O> {
    return (input) => {
      this.#calls.push({ name, input });
      this.#called.emit(name);
      return does(input);
    };
  }
}
