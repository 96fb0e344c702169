import { expect, it } from 'vitest';
import { railNameOf, refuseUnroutable } from '../../src/domain/corridor.js';

it('money of a test account goes to the sandbox bank, and that of a live account never does', () => {
  expect(railNameOf('test')).toBe('sandbox');
  expect(railNameOf('live')).toBeUndefined();
  expect(refuseUnroutable('live')).toMatchObject({
    code: 'corridor_unavailable',
    hint: 'No bank is connected for live accounts.',
  });
});
