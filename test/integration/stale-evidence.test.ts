import { afterAll, beforeAll, expect, it } from 'vitest';
import { storeRailEvents } from '../../src/db/railInbox.js';
import type { Rail } from '../../src/rails/rail.js';
import { QuietRail } from '../fakes/quietRail.js';
import { attempt } from '../fixtures/attempt.js';
import { requested } from '../fixtures/operators.js';
import { payoutActivities } from '../fixtures/payoutActivities.js';
import { payoutOf, requestPayout } from '../fixtures/requestPayout.js';
import { createTestAccount, createTestDatabase, type TestDatabase } from '../servers/database.js';

let test: TestDatabase;
beforeAll(async () => {
  test = await createTestDatabase();
});
afterAll(() => test.drop());

class HookedRail extends QuietRail {
  hook: (() => Promise<void>) | undefined;
  override readonly lookup: Rail['lookup'] = async (keys) => {
    const hook = this.hook;
    this.hook = undefined;
    await hook?.();
    return keys.map((key) => ({ key, kind: 'not_found' as const }));
  };
}

it.each([
  ['few', 2],
  ['many', 40],
] as const)(
  'a report that arrives while a command is evaluated forces a new evaluation: %s earlier findings',
  async (_name, findings) => {
    const rail = new HookedRail();
    const activities = payoutActivities(test.worker, rail);
    const { account } = await createTestAccount(test.database);
    const { id } = await requestPayout(test.database, account.id);
    const target = { driver: id, ids: [id] };
    await activities.decidePayouts({ ...target, workflowAgeMs: 0 });
    await attempt(() => activities.submitPayouts(target));
    const row = () => payoutOf(test.database, account.id, id);
    const { receiveMinor } = await row();
    const amountMinor = receiveMinor ?? 0n;
    for (let n = 1; n <= findings; n += 1) {
      const report = {
        kind: 'settled',
        amountMinor: amountMinor - BigInt(n),
        currency: 'EUR',
      } as const;
      await storeRailEvents(test.database, 'sandbox', [{ id: `m${n}:${id}`, key: id, report }]);
    }
    await activities.applyRailEvents(target);
    expect(await row()).toMatchObject({ status: 'sent', attentionReason: 'amount_mismatch' });
    // While the operator's `settle` queries the bank, a callback reports that all of it was returned.
    rail.hook = async () => {
      const report = {
        kind: 'returned',
        amountMinor,
        currency: 'EUR',
        code: 'AC04',
      } as const;
      await storeRailEvents(test.database, 'sandbox', [{ id: `r:${id}`, key: id, report }]);
      await activities.applyRailEvents(target);
    };
    const input = await requested(test, id, { kind: 'markSettled', evidence: 'MT103 seen' });
    const result = await attempt(() => activities.executeCommand(input)).then(
      ({ result }) => JSON.stringify(result),
      String,
    );
    const after = await row();
    expect(result).toContain('case changed meanwhile');
    expect(after).toMatchObject({ status: 'sent', attentionReason: 'amount_mismatch' });
  },
);
