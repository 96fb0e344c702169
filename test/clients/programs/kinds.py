import json

from corridor import Corridor, Event, UnknownObject
from corridor.models import Batch, WebhookEndpoint

corridor = Corridor()
fed: list[Event] = []
for event in corridor.events.listen():
    fed.append(event)
    if len(fed) == 4:
        break
listed = corridor.events.list().data
read = corridor.events.retrieve("evt_2").data
unknown = fed[1].data
endpoint = fed[3].data
assert isinstance(unknown, UnknownObject) and isinstance(fed[2].data, Batch)
assert isinstance(endpoint, WebhookEndpoint)
try:
    corridor.events.list(after=0)
    raise AssertionError("The list was read from a sequence.")
except TypeError:
    pass
print(
    json.dumps(
        {
            "kinds": [[event.sequence, event.type, event.data.object] for event in fed],
            "whole": unknown.model_dump(exclude_unset=True),
            "listed": len(listed),
            "read": read.model_dump(exclude_unset=True),
            "disabled": endpoint.status,
        }
    )
)
