/** An object as integrators see it, of whichever type and version. */
export type JsonObject = { readonly [name: string]: unknown };
