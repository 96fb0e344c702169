import { describe, expect, it } from 'vitest';
import { createKeyedLimit } from '../../src/keyedLimit.js';

/** Work that ends when the test ends it. */
function openWork() {
  const begun: string[] = [];
  const ends = new Map<string, () => void>();
  return {
    begun,
    work: (name: string) => () => {
      begun.push(name);
      return new Promise<string>((resolve) => ends.set(name, () => resolve(name)));
    },
    end: (name: string) => ends.get(name)?.(),
  };
}

describe('a keyed limit', () => {
  it('runs a limited number of calls per key, queues the rest in order, and does not delay other keys', async () => {
    const { begun, work, end } = openWork();
    const limit = createKeyedLimit(2);
    const done = ['a', 'b', 'c', 'd'].map((name) => limit('slow', work(name)));
    const other = limit('quick', work('other'));
    await expect.poll(() => begun).toEqual(['a', 'b', 'other']);
    end('other');
    expect(await other).toBe('other');
    end('b');
    expect(await done[1]).toBe('b');
    await expect.poll(() => begun).toEqual(['a', 'b', 'other', 'c']);
    for (const name of ['a', 'c']) end(name);
    await expect.poll(() => begun).toContain('d');
    end('d');
    expect(await Promise.all(done.filter((each) => each !== undefined))).toEqual([
      'a',
      'b',
      'c',
      'd',
    ]);
  });

  it('rejects a call at once when too many are queued for its key', async () => {
    const { begun, work, end } = openWork();
    const limit = createKeyedLimit(1, 1);
    const first = limit('slow', work('first'));
    const second = limit('slow', work('second'));
    expect(limit('slow', work('third'))).toBeUndefined();
    await expect.poll(() => begun).toEqual(['first']);
    end('first');
    await first;
    await expect.poll(() => begun).toEqual(['first', 'second']);
    end('second');
    await second;
    const later = limit('slow', work('later'));
    expect(later).toBeDefined();
    await expect.poll(() => begun).toEqual(['first', 'second', 'later']);
    end('later');
    expect(await later).toBe('later');
  });

  it('frees its place when a call fails', async () => {
    const limit = createKeyedLimit(1, 0);
    const failing = limit('key', () => Promise.reject(new Error('of the test')));
    await expect(failing).rejects.toThrow('of the test');
    await expect.poll(() => limit('key', async () => 'next')).toBe('next');
  });
});
