import json
from collections.abc import Callable

from corridor import Corridor, CorridorConnectionError
from corridor.params import CreatePayoutParams

corridor = Corridor(max_retries=1)


def loss_of(call: Callable[[], object]) -> object:
    try:
        return call()
    except CorridorConnectionError as error:
        key = error.idempotency_key
        return [key, error.attempts, key is None or key in str(error)]


def count_balances() -> int:
    return sum(1 for _ in corridor.balances.list())


order: CreatePayoutParams = {
    "beneficiary": "bnf_1",
    "source_currency": "USD",
    "amount": 2_000,
}
writes = [
    loss_of(lambda: corridor.payouts.create(**order).id),
    loss_of(lambda: corridor.payouts.create(**order).id),
]
lists = [loss_of(count_balances), loss_of(count_balances)]
print(json.dumps({"writes": writes, "lists": lists}))
