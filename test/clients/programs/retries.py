import json
from collections.abc import Iterator

from corridor import Corridor, CorridorConnectionError
from corridor.params import BatchItemParams, CreatePayoutParams

# Only the time that a request is given can end one that is never answered.
corridor = Corridor(timeout=600)
beneficiary = corridor.beneficiaries.create(
    type="individual",
    name="Ada Lovelace",
    country="DE",
    currency="EUR",
    iban="DE89370400440532013000",
    timeout=1.0,
).id

order: CreatePayoutParams = {
    "beneficiary": beneficiary,
    "source_currency": "USD",
    "amount": 2_000,
    "reference": "once",
}
paid = corridor.payouts.create(**order)


def items() -> Iterator[BatchItemParams]:
    for reference in ("a", "b", "c"):
        yield {
            "beneficiary": beneficiary,
            "source_currency": "USD",
            "amount": 2_000,
            "reference": reference,
        }


batch = corridor.batches.create_from(items())

urgent: CreatePayoutParams = {**order, "reference": "urgent"}
key: str | None = None
is_advised = False
with Corridor(max_retries=1) as hasty:
    try:
        hasty.payouts.create(**urgent)
    except CorridorConnectionError as error:
        key = error.idempotency_key
        is_advised = key is not None and key in str(error)
repeated = corridor.payouts.create(**urgent, idempotency_key=key)

print(
    json.dumps(
        {
            "paid": paid.id,
            "batch": batch.id,
            "key": key,
            "isAdvised": is_advised,
            "isUrgent": repeated.reference == "urgent",
        }
    )
)
