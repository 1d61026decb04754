"""Do the items of lists become what the rooms know?"""

from dataclasses import fields

from gateway.model import Tenant
from gateway.settings import KeySettings, TenantSettings


def test_a_tenant_is_to_the_rooms_what_its_settings_say() -> None:
    settings = TenantSettings(id="acme", models=["a", "b"], tokens_per_day=7, allow_logprobs=False)

    assert settings.tenant() == Tenant("acme", frozenset({"a", "b"}), tokens_per_day=7, allow_logprobs=False)
    assert {field.name for field in fields(Tenant)} == TenantSettings.model_fields.keys()


def test_a_hash_is_compared_in_lower_case() -> None:
    assert KeySettings(id="k", tenant="t", sha256="AB" * 32).sha256 == "ab" * 32
