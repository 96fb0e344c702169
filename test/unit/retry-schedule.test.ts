import { describe, expect, test } from 'vitest';
import { backoffAfter, retryPausesMs } from '../../src/webhooks/retrySchedule.js';

const dayMs = 24 * 60 * 60 * 1000;

describe('the pause before the next attempt of a webhook', () => {
  test('begins with seconds, never shrinks, and ends three days after the first attempt', () => {
    const hourMs = 60 * 60 * 1000;
    expect(retryPausesMs.slice(0, 8).map((pauseMs) => pauseMs / 1000)).toEqual([
      5, 30, 120, 300, 1_800, 3_600, 7_200, 18_000,
    ]);
    expect(retryPausesMs).toEqual(retryPausesMs.toSorted((a, b) => a - b));
    const lastMs = retryPausesMs.reduce((sum, pauseMs) => sum + pauseMs, 0);
    expect(Math.round(lastMs / hourMs)).toBe(73);
    expect(retryPausesMs.map((pauseMs, index) => backoffAfter(index + 1, 0.5) === pauseMs)).toEqual(
      retryPausesMs.map(() => true),
    );
    expect(backoffAfter(retryPausesMs.length + 1, 0.5)).toBeUndefined();
  });

  test('varies by a fifth either way', () => {
    const [least, most] = [backoffAfter(1, 0), backoffAfter(1, 1)];
    expect(least).toBeGreaterThan(0);
    expect(most).toBe(Math.round((least ?? 0) * 1.5));
  });

  test('is as long as the receiver requests, but at most a day', () => {
    const usualMs = backoffAfter(1, 0.5) ?? 0;
    expect(backoffAfter(1, 0.5, usualMs - 1)).toBe(usualMs);
    expect(backoffAfter(1, 0.5, dayMs)).toBe(dayMs);
    expect(backoffAfter(1, 0.5, 10 * dayMs)).toBe(dayMs);
  });

  test('ends with the schedule, whatever the receiver requests', () => {
    expect(backoffAfter(100, 0.5, dayMs)).toBeUndefined();
  });
});
