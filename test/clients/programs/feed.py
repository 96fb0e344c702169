import json
import sys
import threading

from corridor import Corridor

count: int = json.load(sys.stdin)["count"]
corridor = Corridor()
stop = threading.Event()
events: list[tuple[int, str, str | None]] = []
for event in corridor.events.listen(stop=stop):
    events.append((event.sequence, event.type, event.data.id))
    if len(events) == count:
        stop.set()

resumed: list[int] = []
for event in corridor.events.listen(after=events[2][0]):
    resumed.append(event.sequence)
    if event.sequence == count:
        break
listed = [event.sequence for event in corridor.events.list(limit=3)]
print(json.dumps({"events": events, "resumed": resumed, "listed": listed}))
