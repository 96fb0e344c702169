/** What the person who starts the stack can put right: the message says what is wrong, and how. */
export class CannotStart extends Error {
  override readonly name: string = 'CannotStart';
}
