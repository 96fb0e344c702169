/** Delivers nothing: what a step has announced stays pending in its rows. */
export const silentDeliverer = { begin: () => undefined };
