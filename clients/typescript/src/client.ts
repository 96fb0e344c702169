import { type Batches, batchesOf } from './batches.js';
import { type Events, eventsOf } from './events.js';
import { type Payouts, payoutsOf } from './payouts.js';
import { resourcesOf } from './resources.js';
import { createTransport, type TransportOptions } from './transport.js';

/** All have defaults. Those of `apiKey` and `apiUrl` are CORRIDOR_API_KEY and CORRIDOR_API_URL. */
export type CorridorOptions = {
  readonly [Name in keyof TransportOptions]?: TransportOptions[Name];
};

type Resources = ReturnType<typeof resourcesOf>;

/** A client for one account. It holds no connections that need closing. */
export class Corridor {
  readonly payouts: Payouts;
  readonly batches: Batches;
  readonly events: Events;
  readonly quotes: Resources['quotes'];
  readonly beneficiaries: Resources['beneficiaries'];
  readonly webhookEndpoints: Resources['webhookEndpoints'];
  readonly webhookKeys: Resources['webhookKeys'];
  readonly balances: Resources['balances'];
  readonly limits: Resources['limits'];
  readonly balanceTransactions: Resources['balanceTransactions'];
  readonly corridors: Resources['corridors'];
  readonly rates: Resources['rates'];
  readonly beneficiaryRequirements: Resources['beneficiaryRequirements'];
  readonly account: Resources['account'];
  readonly test: Resources['test'];

  constructor(options: CorridorOptions = {}) {
    const send = createTransport({
      ...options,
      apiKey: options.apiKey ?? fromEnvironment('CORRIDOR_API_KEY', 'apiKey'),
      apiUrl: originOf(options.apiUrl ?? fromEnvironment('CORRIDOR_API_URL', 'apiUrl')),
    });
    const resources = resourcesOf(send);
    this.payouts = payoutsOf(send);
    this.batches = batchesOf(send);
    this.events = eventsOf(send);
    this.quotes = resources.quotes;
    this.beneficiaries = resources.beneficiaries;
    this.webhookEndpoints = resources.webhookEndpoints;
    this.webhookKeys = resources.webhookKeys;
    this.balances = resources.balances;
    this.limits = resources.limits;
    this.balanceTransactions = resources.balanceTransactions;
    this.corridors = resources.corridors;
    this.rates = resources.rates;
    this.beneficiaryRequirements = resources.beneficiaryRequirements;
    this.account = resources.account;
    this.test = resources.test;
  }
}

/** Validates the URL now, so that an invalid one fails here and not after the first request's retries. */
function originOf(apiUrl: string): string {
  return new URL(apiUrl).href.replace(/\/+$/, '');
}

function fromEnvironment(name: string, option: string): string {
  const value = typeof process === 'undefined' ? undefined : process.env[name];
  if (value !== undefined && value !== '') return value;
  throw new TypeError(`Set ${name}, or give ${option} to new Corridor().`);
}
