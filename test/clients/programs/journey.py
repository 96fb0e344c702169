import json
from collections.abc import Callable

from corridor import Corridor, CorridorProblem, CorridorWaitTimeoutError
from corridor.models import Beneficiary, Quote
from corridor.params import CreatePayoutParams

corridor = Corridor()

quote = corridor.quotes.create(source_currency="USD", destination_currency="EUR", amount=125_000)
beneficiary = corridor.beneficiaries.create(
    type="individual",
    name="Ada Lovelace",
    country="DE",
    currency="EUR",
    iban="DE89370400440532013000",
)
order: CreatePayoutParams = {
    "quote": quote.id,
    "beneficiary": beneficiary.id,
    "metadata": {"order": "17"},
}
payout = corridor.payouts.create(**order, idempotency_key="invoice-17")
again = corridor.payouts.create(**order, idempotency_key="invoice-17")
settled = corridor.payouts.wait(payout.id, wait_timeout=30)

live: CreatePayoutParams = {
    "source_currency": "USD",
    "amount": 5_000,
    "beneficiary": beneficiary.id,
}
waited = corridor.payouts.create_and_wait(**live, wait_timeout=30)
rejected: CreatePayoutParams = {**live, "reference": "simulate: reject AC04"}
failed = corridor.payouts.create_and_wait(**rejected, wait_timeout=30)

unsettled: str | None = None
endless: CreatePayoutParams = {**live, "reference": "simulate: never settle"}
try:
    corridor.payouts.create_and_wait(**endless, wait_timeout=1)
except CorridorWaitTimeoutError as error:
    unsettled = error.last.status

endpoint = corridor.webhook_endpoints.create(
    url="http://127.0.0.1:1/", events=["payout.settled", "payout.failed"]
)
kept = corridor.webhook_endpoints.retrieve(endpoint.id)
deleted = corridor.webhook_endpoints.delete(endpoint.id)

read = corridor.payouts.retrieve(payout.id, expand=["beneficiary", "quote"])
account = corridor.account.retrieve()
requirements = corridor.beneficiary_requirements.retrieve(country="DE")
balances = corridor.balances.list().data
corridors = corridor.corridors.list(destination_currency="EUR").data
funded = corridor.test.fund(currency="USD", amount=100)


def problem_of(call: Callable[[], object]) -> object:
    try:
        return call()
    except CorridorProblem as problem:
        is_told = problem.detail != "" and problem.request_id.startswith("req_")
        told = {
            "code": problem.code,
            "status": problem.status,
            "param": problem.param,
            "expected": problem.expected,
            "received": problem.received,
            "others": [error.param for error in problem.errors],
            "isTold": is_told and problem.attempts == 1,
            "kept": problem.payout,
        }
        # What is not there is left out, as in JSON that JavaScript writes.
        return {name: value for name, value in told.items() if value is not None}


malformed: CreatePayoutParams = {**live, "amount": "12.50", "quote": "x"}
too_much: CreatePayoutParams = {**live, "amount": 100_000_000}
print(
    json.dumps(
        {
            "rate": quote.rate,
            "promised": quote.receive_amount,
            "isSame": again.id == payout.id,
            "settled": [settled.status, settled.received, settled.rate, settled.metadata],
            "waited": [waited.status, [change.status for change in waited.status_history]],
            "unsettled": unsettled,
            "failed": [failed.status, failed.status_reason],
            "endpoint": [
                endpoint.events,
                (endpoint.secret or "")[:6],
                hasattr(kept, "secret"),
                deleted.deleted,
            ],
            "expanded": [
                isinstance(read.beneficiary, Beneficiary) and read.beneficiary.name,
                isinstance(read.quote, Quote) and read.quote.status,
            ],
            "mode": account.mode,
            "fields": [field.name for field in requirements.fields],
            "balances": [balance.currency for balance in balances],
            "funded": funded.currency,
            "corridors": any(offer.rail == "sandbox" for offer in corridors),
            "missing": problem_of(lambda: corridor.payouts.retrieve("po_0")),
            "malformed": problem_of(lambda: corridor.payouts.create(**malformed)),
            "refused": problem_of(lambda: corridor.payouts.create(**too_much)),
        }
    )
)
