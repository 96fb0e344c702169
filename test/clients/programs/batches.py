import io
import json
from collections.abc import Iterator

from corridor import Corridor
from corridor.models import Beneficiary
from corridor.params import BatchItemParams

corridor = Corridor()
beneficiary = corridor.beneficiaries.create(
    type="individual",
    name="Ada Lovelace",
    country="DE",
    currency="EUR",
    iban="DE89370400440532013000",
).id


def item(order: int) -> BatchItemParams:
    return {
        "beneficiary": beneficiary,
        "source_currency": "USD",
        "amount": 2_000 + order,
        "metadata": {"order": str(order)},
    }


def items() -> Iterator[BatchItemParams]:
    for order in (4, 5, 6):
        yield item(order)


HEADER = "beneficiary,source_currency,amount,metadata[order]\n"


def rows(*orders: int) -> str:
    return "".join(f"{beneficiary},USD,{2_000 + order},{order}\n" for order in orders)


unknown: BatchItemParams = {**item(0), "beneficiary": "bnf_0"}
payouts = [item(1), item(2), item(3)]
preview = corridor.batches.preview(payouts=[*payouts, unknown])
csv_preview = corridor.batches.preview_csv(HEADER + rows(7, 8))
batches = [
    corridor.batches.create(payouts=payouts, mode="all_or_nothing"),
    corridor.batches.create_from(items(), mode="all_or_nothing"),
    corridor.batches.create_from_csv(HEADER + rows(7, 8)),
    corridor.batches.create_from_csv(
        io.BytesIO(f"{HEADER}{beneficiary},USD,2009,Grüße\n".encode())
    ),
]
done = [corridor.batches.wait(batch.id, wait_timeout=60) for batch in batches]
orders = [
    payout.metadata["order"]
    for batch in batches
    for payout in corridor.batches.payouts(batch.id, limit=2)
]

listed = [payout.id for payout in corridor.payouts.list(limit=2)]
backwards = [
    payout.id for payout in corridor.payouts.list(limit=2, ending_before=listed[-1])
]
page = corridor.payouts.list(limit=3)
named = corridor.payouts.list(
    status=["settled", "returned"], created={"gte": "2026-01-01"}, metadata={"order": "5"}
)
first = corridor.payouts.list(expand=["beneficiary"], limit=1).data[0]
later = corridor.payouts.list(created={"gt": "2100-01-01"})

print(
    json.dumps(
        {
            "preview": [preview.counts.total, [one.code for one in preview.refusals]],
            "csvPreview": csv_preview.counts.accepted,
            "modes": [batch.mode for batch in batches],
            "counts": [
                [batch.status, batch.counts.settled if batch.counts else None]
                for batch in done
            ],
            "orders": orders,
            "listed": len(set(listed)),
            "isBackwards": backwards == list(reversed(listed[:-1])),
            "page": [len(page.data), page.has_more],
            "filtered": [
                len(named.data),
                named.has_more,
                len(later.data),
                isinstance(first.beneficiary, Beneficiary) and first.beneficiary.name,
            ],
        }
    )
)
