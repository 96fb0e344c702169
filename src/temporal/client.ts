import { Client, Connection } from '@temporalio/client';

export type TemporalOptions = { readonly address: string; readonly namespace: string };

/** A client of its own connection; the first call finds out whether the server is there. */
export function connectTemporal({ address, namespace }: TemporalOptions): Client {
  return new Client({ connection: Connection.lazy({ address }), namespace });
}
