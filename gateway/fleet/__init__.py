"""Which workers exist, are they well, how busy is each, and what do they serve?"""

from gateway.fleet.catalogue import Catalogue
from gateway.fleet.members import Fleet, Member, Slot
from gateway.fleet.probes import Origin, Probes

__all__ = ["Catalogue", "Fleet", "Member", "Origin", "Probes", "Slot"]
