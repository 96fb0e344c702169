export { batch } from './batch.js';
export { batchChunk } from './batchChunk.js';
export { refreshRates, retention, statement, sweep } from './maintenance.js';
export { payout } from './payout.js';
export { webhookDelivery } from './webhookDelivery.js';
