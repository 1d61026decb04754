"""What may the operator see and change while the gateway runs? The admin port and its API."""

from gateway.admin.access import AdminKey
from gateway.admin.keys import Keys
from gateway.admin.port import admin_app
from gateway.admin.tenants import Tenants
from gateway.admin.usage import Metering
from gateway.admin.workers import Workers

__all__ = ["AdminKey", "Keys", "Metering", "Tenants", "Workers", "admin_app"]
