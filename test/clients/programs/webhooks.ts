import { text } from 'node:stream/consumers';
import {
  Corridor,
  challengeOf,
  verifyWebhook,
  verifyWebhookEvents,
  WebhookVerificationError,
} from '@corridor/client';

type Delivery = {
  readonly name: string;
  readonly headers: Record<string, string>;
  readonly body: string;
  readonly secrets: string | readonly string[];
  /** The receiver's own endpoints: challenges to other endpoints are not answered. */
  readonly endpoints?: string | readonly string[];
};

const published = await new Corridor().webhookKeys.list();
const deliveries: readonly Delivery[] = JSON.parse(await text(process.stdin));
const verdicts = deliveries.map(({ name, headers, body, secrets: named, endpoints = [] }) => {
  const secrets = named === 'published' ? published : named;
  try {
    const events = verifyWebhookEvents(body, headers, secrets);
    if (events.length > 1)
      return [
        name,
        ...events.map((one) => one.id),
        refusalOf(() => verifyWebhook(body, headers, secrets)),
      ];
    const event = verifyWebhook(body, headers, secrets);
    // Frameworks may also pass bytes and a Headers object.
    verifyWebhook(new TextEncoder().encode(body), new Headers(headers), secrets);
    const challenge = challengeOf(event, endpoints);
    if (challenge !== undefined) return [name, 'answered', challenge];
    return [name, event.type, event.data.id ?? 'not answered'];
  } catch (error) {
    if (error instanceof WebhookVerificationError) return [name, 'refused'];
    throw error;
  }
});
console.log(JSON.stringify(verdicts));

function refusalOf(verify: () => unknown): string {
  try {
    verify();
    return 'taken';
  } catch (error) {
    return error instanceof TypeError ? error.message : String(error);
  }
}
