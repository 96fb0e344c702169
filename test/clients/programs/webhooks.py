import json
import sys

from corridor import Corridor, WebhookVerificationError, challenge_of, verify_webhook

published = Corridor().webhook_keys.list()
verdicts: list[list[str | None]] = []
for delivery in json.load(sys.stdin):
    name, body, secrets = delivery["name"], delivery["body"], delivery["secrets"]
    if secrets == "published":
        secrets = published
    # Header names are written in any case.
    headers = {key.title(): value for key, value in delivery["headers"].items()}
    try:
        event = verify_webhook(body, headers, secrets)
        verify_webhook(body.encode(), headers, secrets)
        challenge = challenge_of(event)
        if challenge is not None:
            verdicts.append([name, "answered", challenge])
        else:
            verdicts.append([name, event.type, event.data.id])
    except WebhookVerificationError:
        verdicts.append([name, "refused"])
print(json.dumps(verdicts))
