/** A failure that the person starting the stack can fix. The message says what is wrong and how to fix it. */
export class CannotStart extends Error {
  override readonly name: string = 'CannotStart';
}
