/** A number of a JSON body as it was written: `1.0`, `1e3` and `1` stay three texts. */
export class DecodedNumber {
  readonly text: string;
  constructor(text: string) {
    this.text = text;
  }
}
