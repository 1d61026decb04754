"""Every setting there is. How a file becomes these objects is in `gateway.configuration`."""

from gateway.settings.sections import (
    Admin,
    Admission,
    Auth,
    Fleet,
    Intake,
    Limits,
    Relay,
    Routing,
    Server,
    Store,
    Upstream,
    Usage,
)
from gateway.settings.tables import KeySettings, ModelSettings, TenantSettings, WorkerSettings
from gateway.settings.values import Section

__all__ = [
    "Admin",
    "Admission",
    "Auth",
    "Fleet",
    "Intake",
    "KeySettings",
    "Limits",
    "ModelSettings",
    "Relay",
    "Routing",
    "Section",
    "Server",
    "Settings",
    "Store",
    "TenantSettings",
    "Upstream",
    "Usage",
    "WorkerSettings",
]


class Settings(Section):
    """A whole configuration file."""

    server: Server = Server()
    auth: Auth = Auth()
    admin: Admin = Admin()
    store: Store = Store()
    limits: Limits = Limits()
    usage: Usage = Usage()
    intake: Intake = Intake()
    admission: Admission = Admission()
    routing: Routing = Routing()
    upstream: Upstream = Upstream()
    relay: Relay = Relay()
    fleet: Fleet = Fleet()
    models: tuple[ModelSettings, ...] = ()
    workers: tuple[WorkerSettings, ...] = ()
    tenants: tuple[TenantSettings, ...] = ()
    keys: tuple[KeySettings, ...] = ()
