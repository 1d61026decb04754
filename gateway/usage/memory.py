"""Where are the sums of usage kept without Redis? In this process, for as long as it runs."""

from datetime import date, timedelta

from gateway.usage.rows import Labels, Sums


class MemoryUsage:
    """A UsageStore. A day is dropped once it lies more than `retention_days` before the newest."""

    def __init__(self, retention_days: int) -> None:
        self._kept = timedelta(days=retention_days)
        self._days: dict[str, dict[Labels, list[int]]] = {}
        self._applied: dict[str, int] = {}

    async def apply(self, process: str, sequence: int, sums: Sums) -> None:
        if self._applied.get(process, 0) >= sequence:
            return
        self._applied[process] = sequence
        for labels, counts in sums.items():
            total = self._day(labels[0]).setdefault(labels, [0, 0, 0, 0])
            for index, count in enumerate(counts):
                total[index] += count

    async def sums(self, first: date, last: date, tenant: str | None = None) -> Sums:
        return {
            labels: tuple(counts)
            for day, by_labels in self._days.items()
            if first.isoformat() <= day <= last.isoformat()
            for labels, counts in by_labels.items()
            if tenant is None or tenant == labels[1]
        }

    def _day(self, day: str) -> dict[Labels, list[int]]:
        found = self._days.get(day)
        if found is None:
            found = self._days[day] = {}
            self._forget(date.fromisoformat(max(self._days)) - self._kept)
        return found

    def _forget(self, oldest: date) -> None:
        for day in [day for day in self._days if day < oldest.isoformat()]:
            del self._days[day]
