import json
from collections.abc import Callable

from corridor import Corridor, CorridorWaitTimeoutError
from corridor.models import Batch, Payout
from corridor.params import CreatePayoutParams

corridor = Corridor(max_retries=0)
order: CreatePayoutParams = {
    "beneficiary": "bnf_1",
    "source_currency": "USD",
    "amount": 2_000,
}


def end_of(wait: Callable[[], Payout | Batch]) -> list[str]:
    try:
        waited = wait()
        return [waited.id, waited.status]
    except CorridorWaitTimeoutError as error:
        return [error.last.id, error.last.status, type(error.__cause__).__name__]


ends = [
    end_of(lambda: corridor.payouts.create_and_wait(**order, wait_timeout=30)),
    end_of(lambda: corridor.payouts.create_and_wait(**order, wait_timeout=1)),
    end_of(lambda: corridor.payouts.create_and_wait(**order, wait_timeout=30)),
    end_of(lambda: corridor.batches.wait("bat_1", wait_timeout=1)),
]
print(json.dumps(ends))
