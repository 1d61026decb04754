"""How many tokens will an answer have?"""

from collections import OrderedDict

from gateway.model import Endpoint

MAX_TENANTS = 10_000
FIRST_TOKENS = 256.0  # between a chat's 211 and 343 in two public traces (Azure 2023, Mooncake); code has 28
NEWEST = 0.05  # weight of the newest answer; an average of the last 20 or so


class Outputs:
    """Running averages of answers, for each tenant and endpoint; the tenants seen last are kept.

    An answer that its maximum cut short counts as it is: how long it might have been nobody knows.
    """

    def __init__(self, max_tenants: int = MAX_TENANTS) -> None:
        self._most = max_tenants * len(Endpoint)
        self._averages: OrderedDict[tuple[str, Endpoint], tuple[float, int]] = (
            OrderedDict()
        )  # and of how many
        self._of_all: dict[Endpoint, tuple[float, int]] = {}

    def expected(self, tenant: str, endpoint: Endpoint, max_tokens: int) -> int:
        """Output tokens, 1 to max_tokens. A new tenant's answers are taken to be like everybody's."""
        known = self._averages.get((tenant, endpoint)) or self._of_all.get(endpoint)
        average = known[0] if known else FIRST_TOKENS
        return max(1, min(max_tokens, round(average)))

    def learn(self, tenant: str, endpoint: Endpoint, tokens: int) -> None:
        """An answer came to its end, with so many tokens over all its sequences."""
        key = (tenant, endpoint)
        averages = self._averages
        averages[key] = _with(averages.get(key), tokens)
        averages.move_to_end(key)
        if len(averages) > self._most:
            averages.popitem(last=False)
        self._of_all[endpoint] = _with(self._of_all.get(endpoint), tokens)


def _with(known: tuple[float, int] | None, tokens: int) -> tuple[float, int]:
    """The plain average of the first answers, the running one from then on."""
    average, answers = known or (0.0, 0)
    weight = max(NEWEST, 1 / (answers + 1))
    return average + weight * (tokens - average), answers + 1
