import { jsonBody } from './bodies.js';
import { type List, listOf } from './lists.js';
import { keyOf } from './payouts.js';
import { queryOf } from './query.js';
import type { RequestOptions, Transport, WriteOptions } from './transport.js';
import type {
  Account,
  Balance,
  BalanceTransaction,
  Beneficiary,
  BeneficiaryRequirements,
  Calculation,
  CorridorOffer,
  Delivery,
  Limit,
  PastRate,
  Quote,
  Rate,
  Redelivery,
  Schemas,
  WebhookEndpoint,
  WebhookEndpointWithSecret,
  WebhookTest,
} from './types.js';

/** Resources without logic of their own: their methods only call the routes. */
export function resourcesOf(send: Transport) {
  const get = <Answer>(path: string, options?: RequestOptions) =>
    send<Answer>({ method: 'GET', path }, options);
  const post = <Answer>(path: string, params: object, options: WriteOptions = {}) =>
    send<Answer>(
      { method: 'POST', path, body: jsonBody(params), idempotencyKey: keyOf(options) },
      options,
    );
  const remove = <Answer>(path: string, options: WriteOptions = {}) =>
    send<Answer>({ method: 'DELETE', path, idempotencyKey: keyOf(options) }, options);
  return {
    quotes: quotesOf(get, post),
    beneficiaries: beneficiariesOf(send, { get, post, remove }),
    webhookEndpoints: webhookEndpointsOf(send, { get, post, remove }),
    webhookKeys: {
      /**
       * Returns the public keys (`whpk_…`) that verify webhooks without a secret. Cache them for five
       * minutes: a new key is published for longer than that before it signs.
       */
      list: async (options?: RequestOptions): Promise<readonly string[]> => {
        const path = '/.well-known/corridor-webhook-keys';
        const { keys } = await get<{ readonly keys: readonly PublicKey[] }>(path, options);
        return keys.map(({ whpk }) => whpk);
      },
    },
    balances: {
      /** Lists the account's balances, by currency. */
      list: (options?: RequestOptions): List<Balance> =>
        listOf<Balance>(send, '/v1/balances', {}, options),
    },
    limits: {
      /** Lists the account's limits and how much of each is used. */
      list: (options?: RequestOptions): List<Limit> =>
        listOf<Limit>(send, '/v1/limits', {}, options),
    },
    balanceTransactions: {
      /** Lists all movements of the balances, newest first. */
      list: (
        params?: Schemas['listBalanceTransactions_params'],
        options?: RequestOptions,
      ): List<BalanceTransaction> =>
        listOf<BalanceTransaction>(send, '/v1/balance_transactions', params, options),
    },
    corridors: {
      /** Lists the currency pairs that can be paid, with fees and limits. */
      list: (
        params?: Schemas['listCorridors_params'],
        options?: RequestOptions,
      ): List<CorridorOffer> => listOf<CorridorOffer>(send, '/v1/corridors', params, options),
    },
    rates: {
      /** Lists the current rates of corridors. A quote holds a rate for 30 seconds. */
      list: (params?: Schemas['listRates_params'], options?: RequestOptions): List<Rate> =>
        listOf<Rate>(send, '/v1/rates', params, options),
      /** Lists the published mid rates of two currencies, newest first. */
      history: (params: Schemas['listPastRates_params'], options?: RequestOptions) =>
        listOf<PastRate>(send, '/v1/rates/history', params, options),
    },
    beneficiaryRequirements: {
      /** Reads which beneficiary details a country requires. */
      retrieve: (params: Schemas['readBeneficiaryRequirements_params'], options?: RequestOptions) =>
        get<BeneficiaryRequirements>(`/v1/beneficiary_requirements${queryOf(params)}`, options),
    },
    account: {
      /** Reads the account of the API key. */
      retrieve: (options?: RequestOptions) => get<Account>('/v1/account', options),
      /** Sets the default API version of requests and new webhook endpoints. */
      update: (params: Schemas['changeAccount_params'], options?: WriteOptions) =>
        post<Account>('/v1/account', params, options),
    },
    test: {
      /** Adds money to the balance of a test account. */
      fund: (params: Schemas['fundTestAccount_params'], options?: WriteOptions) =>
        post<Balance>('/v1/test/fund', params, options),
    },
  };
}

type PublicKey = { readonly whpk: string };
type Get = <Answer>(path: string, options?: RequestOptions) => Promise<Answer>;
type Post = <Answer>(path: string, params: object, options?: WriteOptions) => Promise<Answer>;
type Remove = <Answer>(path: string, options?: WriteOptions) => Promise<Answer>;
type Calls = { readonly get: Get; readonly post: Post; readonly remove: Remove };

function quotesOf(get: Get, post: Post) {
  return {
    /** Prices a payout and holds the rate for 30 seconds. */
    create: (params: Schemas['createQuote_params'], options?: WriteOptions) =>
      post<Quote>('/v1/quotes', params, options),
    /** Reads a quote. */
    retrieve: (id: string, options?: RequestOptions) =>
      get<Quote>(`/v1/quotes/${encodeURIComponent(id)}`, options),
    /** Reads how a quote's price was computed. */
    calculation: (id: string, options?: RequestOptions) =>
      get<Calculation>(`/v1/quotes/${encodeURIComponent(id)}/calculation`, options),
  };
}

function beneficiariesOf(send: Transport, { get, post, remove }: Calls) {
  const path = '/v1/beneficiaries';
  const pathOf = (id: string) => `${path}/${encodeURIComponent(id)}`;
  return {
    /** Validates and stores a beneficiary's account details. */
    create: (params: Schemas['createBeneficiary_params'], options?: WriteOptions) =>
      post<Beneficiary>(path, params, options),
    /** Reads a beneficiary. Its account number is masked. */
    retrieve: (id: string, options?: RequestOptions) => get<Beneficiary>(pathOf(id), options),
    /** Lists beneficiaries, newest first. */
    list: (
      params?: Schemas['listBeneficiaries_params'],
      options?: RequestOptions,
    ): List<Beneficiary> => listOf<Beneficiary>(send, path, params, options),
    /** Changes the given details. Accepted payouts keep the previous ones. */
    update: (id: string, params: Schemas['updateBeneficiary_params'], options?: WriteOptions) =>
      post<Beneficiary>(pathOf(id), params, options),
    /** Deletes a beneficiary, which can then receive no more payouts. */
    delete: (id: string, options?: WriteOptions) => remove<Beneficiary>(pathOf(id), options),
  };
}

function webhookEndpointsOf(send: Transport, { get, post, remove }: Calls) {
  const path = '/v1/webhook_endpoints';
  const pathOf = (id: string) => `${path}/${encodeURIComponent(id)}`;
  return {
    /** Creates an endpoint. Only this response contains the secret that verifyWebhook needs. */
    create: (params: Schemas['createWebhookEndpoint_params'], options?: WriteOptions) =>
      post<WebhookEndpointWithSecret>(path, params, options),
    /** Reads an endpoint, without its secret. */
    retrieve: (id: string, options?: RequestOptions) => get<WebhookEndpoint>(pathOf(id), options),
    /** Lists endpoints, newest first. */
    list: (
      params?: Schemas['listWebhookEndpoints_params'],
      options?: RequestOptions,
    ): List<WebhookEndpoint> => listOf<WebhookEndpoint>(send, path, params, options),
    /** Lists the deliveries to an endpoint, newest event first. */
    deliveries: (
      id: string,
      params?: Schemas['listEndpointDeliveries_params'],
      options?: RequestOptions,
    ): List<Delivery> => listOf<Delivery>(send, `${pathOf(id)}/deliveries`, params, options),
    /** Redelivers events: those that have failed since a time, or all in a range of sequences. */
    redeliver: (id: string, params: Schemas['redeliverFailed_params'], options?: WriteOptions) =>
      post<Redelivery>(`${pathOf(id)}/redeliver`, params, options),
    /** Changes an endpoint's URL, events or status. `status: 'enabled'` resumes deliveries. */
    update: (id: string, params: Schemas['updateWebhookEndpoint_params'], options?: WriteOptions) =>
      post<WebhookEndpoint>(pathOf(id), params, options),
    /** Sends a challenge to an unverified endpoint. If its receiver responds correctly, events are sent. */
    verify: (id: string, options?: WriteOptions) =>
      post<WebhookEndpoint>(`${pathOf(id)}/verify`, {}, options),
    /** Sends a test message to a verified endpoint and returns the outcome. */
    test: (id: string, options?: WriteOptions) =>
      post<WebhookTest>(`${pathOf(id)}/test`, {}, options),
    /** Replaces the secret. Only this response contains the new one. Both sign for `overlap_hours`. */
    rotateSecret: (
      id: string,
      params: Schemas['rotateWebhookEndpointSecret_params'] = {},
      options?: WriteOptions,
    ) => post<WebhookEndpointWithSecret>(`${pathOf(id)}/rotate_secret`, params, options),
    /** Ends the overlap of a rotation: from now on only the newest secret signs. */
    revokeOldSecret: (id: string, options?: WriteOptions) =>
      post<WebhookEndpoint>(`${pathOf(id)}/revoke_old_secret`, {}, options),
    /** Deletes an endpoint: no more events are sent to it. */
    delete: (id: string, options?: WriteOptions) => remove<WebhookEndpoint>(pathOf(id), options),
  };
}
