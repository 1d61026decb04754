"""Which workers exist, are they well, how busy is each, and what do they serve?"""

from gateway.fleet.catalogue import Catalogue
from gateway.fleet.fleet import Fleet
from gateway.fleet.health import EJECTED, WELL
from gateway.fleet.member import Member
from gateway.fleet.probes import Origin, Probes
from gateway.fleet.roster import LocalSwitch, Roster, WorkerSwitch
from gateway.fleet.slot import Slot

__all__ = [
    "EJECTED",
    "WELL",
    "Catalogue",
    "Fleet",
    "LocalSwitch",
    "Member",
    "Origin",
    "Probes",
    "Roster",
    "Slot",
    "WorkerSwitch",
]
