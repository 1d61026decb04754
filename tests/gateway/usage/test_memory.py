"""Does memory stay bounded? What all stores of usage promise is in test_stores."""

from datetime import date

from gateway.usage import MemoryUsage
from tests.gateway.usage.samples import labels

ALL_TIME = (date.min, date.max)


async def test_days_are_kept_for_as_long_as_they_are_to_be() -> None:
    store = MemoryUsage(retention_days=2)
    await store.apply("p", 1, {labels(day="2026-11-29"): (1, 0, 0, 0)})

    await store.apply("p", 2, {labels(day="2026-12-01"): (1, 0, 0, 0)})
    kept = {day for day, *_ in await store.sums(*ALL_TIME)}
    await store.apply("p", 3, {labels(day="2026-12-02"): (1, 0, 0, 0)})
    left = {day for day, *_ in await store.sums(*ALL_TIME)}

    assert kept == {"2026-11-29", "2026-12-01"}
    assert left == {"2026-12-01", "2026-12-02"}
