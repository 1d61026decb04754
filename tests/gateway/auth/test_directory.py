"""Which tenants and keys does a configuration file have?"""

from datetime import UTC, datetime

from gateway.auth import FileDirectory
from gateway.model import Grant, Tenant
from gateway.settings import TenantSettings
from tests.gateway.auth.directories import SECRET, digest, file_key


def test_a_key_of_the_file_is_found_by_its_hash() -> None:
    tenants = [TenantSettings(id="globex"), TenantSettings(id="acme", max_concurrency=3)]
    later = datetime(2027, 1, 31, tzinfo=UTC)
    keys = [file_key(), file_key("sk-2", "acme-2", expires_at=later)]

    file = FileDirectory(tenants, keys)

    acme = Tenant("acme", max_concurrency=3)
    assert file.tenants == {"globex": Tenant("globex"), "acme": acme}
    assert file.grants == {
        digest(SECRET): Grant(acme, "acme-1"),
        digest("sk-2"): Grant(acme, "acme-2", later.timestamp()),
    }
