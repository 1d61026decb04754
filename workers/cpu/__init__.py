"""Where does a real vLLM worker come from on a machine without a GPU?

The build of vLLM for CPUs lives in a virtual environment of its own, because its pins and the gateway's
would not agree. This package needs the standard library only: it runs before anything is installed.
"""

from workers.cpu.child import CommandFailed
from workers.cpu.environment import CpuEnvironment, NotInstalled, default_cache, locate
from workers.cpu.installation import install
from workers.cpu.machine import CannotInstall
from workers.cpu.steps import Detail, Steps

__all__ = [
    "CannotInstall",
    "CommandFailed",
    "CpuEnvironment",
    "Detail",
    "NotInstalled",
    "Steps",
    "default_cache",
    "install",
    "locate",
]
