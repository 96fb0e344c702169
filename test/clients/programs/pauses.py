import json
import sys
from datetime import datetime, timezone

from corridor._retry import Attempt, pause_before_retry

NOW = datetime(2026, 11, 21, 12, 0, 0, tzinfo=timezone.utc)

print(
    json.dumps(
        [
            pause_before_retry(
                Attempt(status=case.get("status"), code=case.get("code"), retry_after=case.get("retryAfter")),
                retries=case["retries"],
                random=case["random"],
                now=NOW,
            )
            for case in json.load(sys.stdin)
        ]
    )
)
