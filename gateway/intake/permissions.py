"""Which rules hold for this tenant? Those of [intake], and before them its own."""

from itertools import product

from gateway import settings
from gateway.model import Tenant

_NAMES = ("allow_logprobs", "allow_chat_template", "allow_media_urls")  # of settings and tenants alike


class Permissions:
    """The rules for each way in which a tenant may differ from the others: 27, made beforehand, so that a
    request only looks its rules up, and tenants may come, change and go."""

    def __init__(self, general: settings.Intake) -> None:
        self._rules = {
            own: general.model_copy(
                update={name: value for name, value in zip(_NAMES, own, strict=True) if value is not None}
            )
            for own in product((None, True, False), repeat=len(_NAMES))
        }

    def of(self, tenant: Tenant) -> settings.Intake:
        """The rules as they hold for this tenant."""
        return self._rules[tenant.allow_logprobs, tenant.allow_chat_template, tenant.allow_media_urls]
