"""Which keys and tenants exist, and what may be done to them?"""

from gateway.keyring.keyring import Keyring, TenancyStore
from gateway.keyring.records import Addition, KeyRecord, NewKey, SecretRecord, State, TenantRecord

__all__ = [
    "Addition",
    "KeyRecord",
    "Keyring",
    "NewKey",
    "SecretRecord",
    "State",
    "TenancyStore",
    "TenantRecord",
]
