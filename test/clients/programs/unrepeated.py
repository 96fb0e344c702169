import json
from collections.abc import Callable

from corridor import Corridor, CorridorConnectionError, CorridorProblem
from corridor.models import Quote

corridor = Corridor()


def failure_of(call: Callable[[], object]) -> object:
    try:
        return call()
    except CorridorProblem as problem:
        return [problem.code, problem.attempts]
    except CorridorConnectionError as error:
        cause = error.__cause__
        code = cause.code if isinstance(cause, CorridorProblem) else None
        return [error.status, error.attempts, code, error.idempotency_key is not None]


def quote(client: Corridor = corridor) -> Quote:
    return client.quotes.create(source_currency="USD", destination_currency="EUR", amount=100)


without_retries = Corridor(max_retries=0)
failures = [
    failure_of(lambda: corridor.payouts.cancel("po_1")),
    failure_of(quote),
    failure_of(quote),
    failure_of(quote),
    failure_of(quote),
    failure_of(quote),
    failure_of(quote),
    failure_of(quote),
    failure_of(quote),
    failure_of(quote),
    failure_of(lambda: quote(without_retries)),
    failure_of(lambda: quote(without_retries)),
]
print(json.dumps({"failures": failures}))
