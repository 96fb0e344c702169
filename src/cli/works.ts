import { readLoginConfig } from '../config.js';
import { migrate } from '../db/migrate.js';
import { allowLogins } from '../db/roles.js';
import { changeState, fundAccount, listAccounts, openAccount, showAccount } from './account.js';
import { showArrivals } from './arrivals.js';
import { listBatches, pause, resume, showBatch } from './batches.js';
import { changeOpening, showOpenings } from './corridors.js';
import { examine } from './doctor.js';
import { showExposure } from './exposure.js';
import { createKey, listKeys, revokeKey, rollKey } from './keys.js';
import { changeLimits, changePayeeDelay, showLimits } from './limits.js';
import {
  addFirstOperator,
  addOperator,
  endOperator,
  rollOperator,
  showOperators,
} from './operators.js';
import { showPayout } from './payout.js';
import { listPayouts, payoutCommands } from './payouts.js';
import { erase, rotateMasterKey } from './personalData.js';
import { decideWaitingRate, listRates, useProvider } from './rates.js';
import { reconcile } from './reconcile.js';
import { previewTerms, setTerms, showTerms } from './terms.js';
import type { Call } from './usage.js';
import { listWebhooks } from './webhooks.js';

/** What works on a database, by its words. The exit code is 1 where it answers false. */
export const works: Readonly<Record<string, (call: Call) => Promise<unknown>>> = {
  migrate: migrateForLogins,
  doctor: examine,
  'operators list': showOperators,
  'operators first': addFirstOperator,
  'operators add': addOperator,
  'operators roll': rollOperator,
  'operators revoke': endOperator,
  'account open': openAccount,
  'account list': listAccounts,
  'account show': showAccount,
  'account fund': fundAccount,
  'account freeze': (call) => changeState(call, 'frozen'),
  'account unfreeze': (call) => changeState(call, 'open'),
  'account close': (call) => changeState(call, 'closed'),
  'keys list': listKeys,
  'keys create': createKey,
  'keys roll': rollKey,
  'keys revoke': revokeKey,
  'limits set': changeLimits,
  'limits new-payee': changePayeeDelay,
  'limits show': showLimits,
  'payouts list': listPayouts,
  'payouts show': showPayout,
  ...payoutCommands,
  'batches list': listBatches,
  'batches show': showBatch,
  'batches pause': pause,
  'batches resume': resume,
  'webhooks list': listWebhooks,
  'rates list': listRates,
  'rates use': useProvider,
  'rates accept': (call) => decideWaitingRate(call, 'accepted'),
  'rates reject': (call) => decideWaitingRate(call, 'rejected'),
  'terms list': showTerms,
  'terms set': setTerms,
  'terms preview': previewTerms,
  'corridors list': showOpenings,
  'corridors close': (call) => changeOpening(call, 'close'),
  'corridors open': (call) => changeOpening(call, 'open'),
  exposure: showExposure,
  arrivals: showArrivals,
  reconcile,
  erase,
  'master-key rotate': rotateMasterKey,
};

async function migrateForLogins({ database }: Call): Promise<void> {
  const applied = await migrate(database);
  const logins = readLoginConfig(process.env);
  await allowLogins(database, {
    api: logins.API_DATABASE_URL,
    worker: logins.WORKER_DATABASE_URL,
    operator: logins.OPERATOR_DATABASE_URL,
  });
  console.log(applied.length === 0 ? 'Nothing to do.' : `Applied ${applied.join(', ')}.`);
}
