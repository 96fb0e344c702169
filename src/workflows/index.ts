export { batch } from './batch.js';
export { batchChunk } from './batchChunk.js';
export { balances, refreshRates, retention, statement, sweep } from './maintenance.js';
export { payout } from './payout.js';
export { webhookDelivery } from './webhookDelivery.js';
export { webhookProbe } from './webhookProbe.js';
