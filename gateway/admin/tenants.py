"""Tenants over the admin API: list, read, put, delete."""

from typing import TYPE_CHECKING, Any, Literal

from pydantic import ConfigDict, create_model

from gateway.admin.fields import checked
from gateway.admin.operations import SHOWN, Asked, Nothing, Operation, Operations, Shown
from gateway.keyring import Keyring, TenantRecord
from gateway.keyring.records import Source
from gateway.settings import Section, TenantSettings

if TYPE_CHECKING:
    TenantFields = TenantSettings
else:
    TenantFields = create_model(
        "TenantFields",
        __base__=Section,
        __doc__="What is left out is as its default says, not as it was.",
        **{name: (of.annotation, of) for name, of in TenantSettings.model_fields.items() if name != "id"},
    )


class Tenant(TenantSettings):
    """A tenant with all its settings."""

    model_config = SHOWN | ConfigDict(extra="ignore")

    object: Literal["tenant"] = "tenant"
    source: Source
    """Where it is kept. Those of the configuration file are changed there."""


class TenantList(Shown):
    object: Literal["list"] = "list"
    data: list[Tenant]


class DeletedTenant(Shown):
    object: Literal["tenant"] = "tenant"
    id: str
    deleted: Literal[True] = True


class Tenants:
    def __init__(self, keyring: Keyring) -> None:
        self._keyring = keyring

    def operations(self) -> Operations:
        path, one = "/admin/tenants", "/admin/tenants/{id}"
        yield Operation("listTenants", "GET", path, self.all, Nothing, TenantList)
        yield Operation("readTenant", "GET", one, self.one, Nothing, Tenant, also=(404,))
        yield Operation("putTenant", "PUT", one, self.put, TenantFields, Tenant, also=(409,))
        yield Operation("deleteTenant", "DELETE", one, self.delete, Nothing, DeletedTenant, also=(404, 409))

    async def all(self, asked: Asked[Nothing]) -> TenantList:
        """All tenants, of the configuration file and of Redis."""
        return TenantList(data=[_shown(record) for record in await self._keyring.tenants()])

    async def one(self, asked: Asked[Nothing]) -> Tenant:
        """One tenant."""
        return _shown(await self._keyring.tenant(asked.id))

    async def put(self, asked: Asked[TenantFields]) -> Tenant:
        """Create a tenant, or replace all its settings.

        Requests that come later see them; limits count on from where they stand.
        """
        fields: dict[str, Any] = dict(asked.fields) | {"id": asked.id}
        settings = checked(TenantSettings, "path", lambda: TenantSettings(**fields))
        return _shown(await self._keyring.put_tenant(settings))

    async def delete(self, asked: Asked[Nothing]) -> DeletedTenant:
        """Delete a tenant that has no active key."""
        await self._keyring.delete_tenant(asked.id)
        return DeletedTenant(id=asked.id)


def _shown(record: TenantRecord) -> Tenant:
    return Tenant(**dict(record.settings), source=record.source)
