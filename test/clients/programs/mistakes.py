"""Nobody runs this: the type checker has to find each mistake, and nothing else."""

from corridor import Corridor, CorridorProblem


def mistakes(corridor: Corridor, problem: CorridorProblem) -> object:
    corridor.payouts.create(source_currency="USD")  # type: ignore[call-arg]
    corridor.payouts.create(beneficiary="bnf_1", sourceCurrency="USD")  # type: ignore[call-arg]
    metadata = {"order": 7}
    corridor.payouts.create(beneficiary="bnf_1", metadata=metadata)  # type: ignore[arg-type]
    corridor.payouts.list(status="paid")  # type: ignore[arg-type]
    corridor.webhook_endpoints.create(url="https://example.com", events=["paid"])  # type: ignore[list-item]
    payout = corridor.payouts.retrieve("po_1")
    received: float = payout.received  # type: ignore[assignment]
    name = payout.beneficiary.name  # type: ignore[attr-defined]
    return (received, name, problem.reason)  # type: ignore[attr-defined]
