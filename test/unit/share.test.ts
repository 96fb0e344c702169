import { describe, expect, it } from 'vitest';
import { createShare } from '../../src/share.js';

/** Work that ends when the test has it end. */
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

describe('a share', () => {
  it('does so much of a key at once, the rest in its order, and other keys meanwhile', async () => {
    const { begun, work, end } = openWork();
    const share = createShare(2);
    const done = ['a', 'b', 'c', 'd'].map((name) => share('slow', work(name)));
    const other = share('quick', work('other'));
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

  it('does not begin what too much waits before, and says so at once', async () => {
    const { begun, work, end } = openWork();
    const share = createShare(1, 1);
    const first = share('slow', work('first'));
    const second = share('slow', work('second'));
    expect(share('slow', work('third'))).toBeUndefined();
    await expect.poll(() => begun).toEqual(['first']);
    end('first');
    await first;
    await expect.poll(() => begun).toEqual(['first', 'second']);
    end('second');
    await second;
    const later = share('slow', work('later'));
    expect(later).toBeDefined();
    await expect.poll(() => begun).toEqual(['first', 'second', 'later']);
    end('later');
    expect(await later).toBe('later');
  });

  it('is there for the next after work that failed', async () => {
    const share = createShare(1, 0);
    const failing = share('key', () => Promise.reject(new Error('of the test')));
    await expect(failing).rejects.toThrow('of the test');
    await expect.poll(() => share('key', async () => 'next')).toBe('next');
  });
});
