import { expect, it } from 'vitest';
import { refuseState } from '../../src/domain/accountState.js';

it('an open account sends payouts; of a frozen one the accepted payouts continue, of a closed one none', () => {
  expect(refuseState('open')).toBeUndefined();
  expect(refuseState('frozen')).toMatchObject({
    ...{ code: 'account_frozen', expected: 'an open account', received: 'frozen' },
    detail:
      'The account is frozen and cannot send payouts. Accepted payouts continue. Contact the operator of the service.',
  });
  expect(refuseState('closed')).toMatchObject({
    ...{ code: 'account_closed', expected: 'an open account', received: 'closed' },
    detail:
      'The account is closed and cannot send payouts. Its API keys can only read. Contact the operator of the service.',
  });
});
