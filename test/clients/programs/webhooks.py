import json
import sys

from corridor import (
    Corridor,
    WebhookVerificationError,
    challenge_of,
    verify_webhook,
    verify_webhook_events,
)



def refusal_of(body: str, headers: dict[str, str], secrets: str | list[str]) -> str:
    try:
        verify_webhook(body, headers, secrets)
    except ValueError as error:
        return str(error)
    return "taken"


published = Corridor().webhook_keys.list()
verdicts: list[list[str | None]] = []
for delivery in json.load(sys.stdin):
    name, body, secrets = delivery["name"], delivery["body"], delivery["secrets"]
    if secrets == "published":
        secrets = published
    # Header names are written in any case.
    headers = {key.title(): value for key, value in delivery["headers"].items()}
    try:
        events = verify_webhook_events(body, headers, secrets)
        if len(events) > 1:
            verdicts.append([name, *(one.id for one in events), refusal_of(body, headers, secrets)])
            continue
        event = verify_webhook(body, headers, secrets)
        verify_webhook(body.encode(), headers, secrets)
        challenge = challenge_of(event, delivery.get("endpoints", []))
        if challenge is not None:
            verdicts.append([name, "answered", challenge])
        else:
            verdicts.append([name, event.type, event.data.id or "not answered"])
    except WebhookVerificationError:
        verdicts.append([name, "refused"])
print(json.dumps(verdicts))
