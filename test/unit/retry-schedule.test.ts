import { describe, expect, test } from 'vitest';
import { backoffAfter } from '../../src/webhooks/retrySchedule.js';

const dayMs = 24 * 60 * 60 * 1000;

describe('the pause before the next attempt of a webhook', () => {
  test('varies by a fifth either way', () => {
    const [least, most] = [backoffAfter(1, 0), backoffAfter(1, 1)];
    expect(least).toBeGreaterThan(0);
    expect(most).toBe(Math.round((least ?? 0) * 1.5));
  });

  test('is as long as the receiver asks for, and never more than a day', () => {
    const usualMs = backoffAfter(1, 0.5) ?? 0;
    expect(backoffAfter(1, 0.5, usualMs - 1)).toBe(usualMs);
    expect(backoffAfter(1, 0.5, dayMs)).toBe(dayMs);
    expect(backoffAfter(1, 0.5, 10 * dayMs)).toBe(dayMs);
  });

  test('ends with the schedule, whatever the receiver asks for', () => {
    expect(backoffAfter(100, 0.5, dayMs)).toBeUndefined();
  });
});
