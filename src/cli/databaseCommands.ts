import { readLoginConfig } from '../config.js';
import type { Call } from './usage.js';

/**
 * Commands that work on a database, by name. The exit code is 1 if a command returns false. Each imports
 * its own file, because loading all of them takes as long as running a command.
 */
export const databaseCommands: Readonly<Record<string, (call: Call) => Promise<unknown>>> = {
  migrate: migrateForLogins,
  doctor: async (call) => (await import('./doctor.js')).examine(call),
  'operators list': async (call) => (await import('./operators.js')).showOperators(call),
  'operators first': async (call) => (await import('./operators.js')).addFirstOperator(call),
  'operators add': async (call) => (await import('./operators.js')).giveProof(call, 'add'),
  'operators roll': async (call) => (await import('./operators.js')).giveProof(call, 'roll'),
  'operators revoke': async (call) => (await import('./operators.js')).endOperator(call),
  'account open': async (call) => (await import('./account.js')).openAccount(call),
  'account list': async (call) => (await import('./account.js')).listAccounts(call),
  'account show': async (call) => (await import('./account.js')).showAccount(call),
  'account fund': async (call) => (await import('./account.js')).fundAccount(call),
  'account freeze': async (call) => (await import('./account.js')).changeState(call, 'frozen'),
  'account unfreeze': async (call) => (await import('./account.js')).changeState(call, 'open'),
  'account close': async (call) => (await import('./account.js')).changeState(call, 'closed'),
  'keys list': async (call) => (await import('./keys.js')).listKeys(call),
  'keys create': async (call) => (await import('./keys.js')).createKey(call),
  'keys roll': async (call) => (await import('./keys.js')).rollKey(call),
  'keys revoke': async (call) => (await import('./keys.js')).revokeKey(call),
  'limits set': async (call) => (await import('./limits.js')).changeLimits(call),
  'limits new-payee': async (call) => (await import('./limits.js')).changePayeeDelay(call),
  'limits show': async (call) => (await import('./limits.js')).showLimits(call),
  'payouts list': async (call) => (await import('./payouts.js')).listPayouts(call),
  'payouts show': async (call) => (await import('./showPayout.js')).showPayout(call),
  'batches list': async (call) => (await import('./batches.js')).listBatches(call),
  'batches show': async (call) => (await import('./batches.js')).showBatch(call),
  'batches pause': async (call) => (await import('./batches.js')).pause(call),
  'batches resume': async (call) => (await import('./batches.js')).resume(call),
  'webhooks list': async (call) => (await import('./webhooks.js')).listWebhooks(call),
  'rates list': async (call) => (await import('./rates.js')).listRates(call),
  'rates use': async (call) => (await import('./rates.js')).useProvider(call),
  'rates accept': async (call) => (await import('./rates.js')).decideWaitingRate(call, 'accepted'),
  'rates reject': async (call) => (await import('./rates.js')).decideWaitingRate(call, 'rejected'),
  'terms list': async (call) => (await import('./terms.js')).showTerms(call),
  'terms set': async (call) => (await import('./terms.js')).setTerms(call),
  'terms preview': async (call) => (await import('./terms.js')).previewTerms(call),
  'corridors list': async (call) => (await import('./corridors.js')).showOpenings(call),
  'corridors close': async (call) => (await import('./corridors.js')).changeOpening(call, 'close'),
  'corridors open': async (call) => (await import('./corridors.js')).changeOpening(call, 'open'),
  audit: async (call) => (await import('./audit.js')).showAudit(call),
  exposure: async (call) => (await import('./exposure.js')).showExposure(call),
  arrivals: async (call) => (await import('./arrivals.js')).showArrivals(call),
  reconcile: async (call) => (await import('./reconcile.js')).reconcile(call),
  erase: async (call) => (await import('./personalData.js')).erase(call),
  'master-key rotate': async (call) => (await import('./personalData.js')).rotateMasterKey(call),
};

async function migrateForLogins({ database }: Call): Promise<void> {
  const { migrate } = await import('../db/migrate.js');
  const { allowLogins } = await import('../db/roles.js');
  const applied = await migrate(database);
  const logins = readLoginConfig(process.env);
  await allowLogins(database, {
    api: logins.API_DATABASE_URL,
    worker: logins.WORKER_DATABASE_URL,
    operator: logins.OPERATOR_DATABASE_URL,
    sign_in: logins.SIGN_IN_DATABASE_URL,
  });
  console.log(applied.length === 0 ? 'Nothing to do.' : `Applied ${applied.join(', ')}.`);
}

/** Returns a command's function. payouts.ts lists the commands that change a payout. */
export async function databaseCommandOf(name: string) {
  return databaseCommands[name] ?? (await import('./payouts.js')).payoutCommands[name];
}
