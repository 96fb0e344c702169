export { batch } from './batch.js';
export { refreshRates, sweep } from './maintenance.js';
export { payout } from './payout.js';
export { webhookDelivery } from './webhookDelivery.js';
