"""A tenant's own permissions go before the general ones, each by itself."""

from collections.abc import Sequence
from itertools import product

import pytest

from gateway import settings
from gateway.intake.permissions import Permissions
from gateway.model import Tenant

NAMES = ("allow_logprobs", "allow_chat_template", "allow_media_urls")
OWN = list(product((None, True, False), repeat=len(NAMES)))


def tenant(own: Sequence[bool | None]) -> Tenant:
    logprobs, chat_template, media_urls = own
    return Tenant(
        "acme", allow_logprobs=logprobs, allow_chat_template=chat_template, allow_media_urls=media_urls
    )


@pytest.mark.parametrize("general", list(product((True, False), repeat=len(NAMES))))
def test_what_a_tenant_leaves_open_is_as_for_all(general: tuple[bool, ...]) -> None:
    by_name = dict(zip(NAMES, general, strict=True))
    permissions = Permissions(settings.Intake(**by_name))

    for own in OWN:
        rules = permissions.of(tenant(own))
        expected = [every if mine is None else mine for every, mine in zip(general, own, strict=True)]
        assert [getattr(rules, name) for name in NAMES] == expected


def test_every_other_rule_is_the_same_for_all() -> None:
    general = settings.Intake(max_n=3, allow_prompt_logprobs=True, max_logprobs=7)
    permissions = Permissions(general)

    for own in OWN:
        rules = permissions.of(tenant(own))
        assert rules.model_dump(exclude=set(NAMES)) == general.model_dump(exclude=set(NAMES))


def test_a_tenant_that_changes_has_its_new_rules_at_once() -> None:
    permissions = Permissions(settings.Intake())

    assert permissions.of(Tenant("acme", allow_logprobs=False)).allow_logprobs is False
    assert permissions.of(Tenant("acme")).allow_logprobs is True
