import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import {
  type ChunkCounts,
  chunkCountOf,
  chunkDriver,
  chunkNumberOf,
  chunkSize,
  groupSize,
  groupsOf,
  isOpen,
  maximumBatchItems,
} from '../../src/domain/batch.js';

describe('groups of a list', () => {
  it('contain every item once and in order, and all but the last are full', () => {
    fc.assert(
      fc.property(fc.array(fc.nat()), fc.integer({ min: 1, max: 7 }), (items, size) => {
        const groups = groupsOf(items, size);
        expect(groups.flat()).toEqual(items);
        const sizes = groups.map(({ length }) => length);
        expect(sizes.slice(0, -1).every((length) => length === size)).toBe(true);
        expect(sizes.every((length) => length > 0 && length <= size)).toBe(true);
      }),
    );
  });

  it('have the size of one transaction when no size is stated', () => {
    const items = Array.from({ length: groupSize + 1 }, (_, n) => n);
    expect(groupsOf(items).map(({ length }) => length)).toEqual([groupSize, 1]);
  });
});

describe('the chunks of a batch', () => {
  it.each([
    [0, 0],
    [chunkSize - 1, 0],
    [chunkSize, 1],
    [maximumBatchItems - 1, maximumBatchItems / chunkSize - 1],
  ])('hold item %i in chunk %i', (index, number) => {
    expect(chunkNumberOf(index)).toBe(number);
  });

  it.each([
    [0, 0],
    [1, 1],
    [chunkSize, 1],
    [chunkSize + 1, 2],
    [maximumBatchItems, maximumBatchItems / chunkSize],
  ])('for %i items number %i', (total, count) => {
    expect(chunkCountOf(total)).toBe(count);
  });

  it('are processed by workflows that are named after the batch and the chunk number', () => {
    expect(chunkDriver({ batchId: 'bat_1', number: 7 })).toBe('bat_1/7');
  });

  const none: ChunkCounts = {
    ...{ pending: 0, unsent: 0, unanswered: 0, overdue: 0, sent: 0, stuck: 0 },
  };
  it.each([
    ['pending', false],
    ['unsent', true],
    ['unanswered', true],
    ['sent', true],
    ['stuck', true],
  ] as const)('with a %s item are open: %s', (state, open) => {
    expect(isOpen({ ...none, [state]: 1 })).toBe(open);
    expect(isOpen(none)).toBe(false);
  });
});
