"""Tickets for tests."""

from typing import Any

from gateway.fairness import Ticket


def ticket(tenant: str = "acme", work: float = 10.0, **fields: Any) -> Ticket[str]:
    """An unremarkable ticket; `work` is both its prompt's and its total, unless those are given."""
    given: dict[str, Any] = {
        "weight": 1.0,
        "band": "default",
        "model": "llama",
        "lane": 0,
        "label": 0,
        "prompt_work": work,
        "total_work": work,
        "arrived_s": 0.0,
        "payload": "",
    }
    return Ticket(tenant=tenant, **(given | fields))
