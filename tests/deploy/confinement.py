"""How is a command run as a container engine would run it? By the kernel: as nobody, on read-only files.

`read_only`, `cap_drop: [ALL]`, `no-new-privileges` and the image's USER, without an engine: in a mount
namespace of its own, where only the /dev/shm that engines give can be written to.
"""

import os
import shlex
import stat
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.deploy.files import ROOT, last, tool

# Nobody has no home; and what measures coverage would write beside the sources.
LEFT_OUT = ("HOME", "COVERAGE_PROCESS_CONFIG", "COVERAGE_PROCESS_START")
READ_ONLY = """
while read -r _ point kind _; do
    case $kind in
        proc|sysfs|devpts|mqueue|cgroup*) ;;
        *) mount -o remount,bind,ro "$point" 2>/dev/null || : ;;
    esac
done < /proc/self/mounts
mount -t tmpfs -o mode=1777 tmpfs /dev/shm
"""


def confined(argv: Sequence[str], place: Path) -> list[str]:
    """The command that runs `argv` so. place: a directory in which directories may be made for it before."""
    script = "set -e\n" + "\n".join(_opened([Path(sys.base_prefix), ROOT], place)) + READ_ONLY
    environment = ["env", *(f"--unset={name}" for name in LEFT_OUT)]
    return [*_namespace(), "sh", "-c", f'{script}exec "$@"', "sh", *environment, *_as_nobody(), *argv]


def _namespace() -> list[str]:
    """Somebody who is not root may make one in which it is, over what is its own."""
    own = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    return [tool("unshare", "util-linux"), *own, "--mount", "--propagation", "private"]


def _as_nobody() -> list[str]:
    user, group = last("USER").value.split(":")
    changed = ["--reuid", user, "--regid", group, "--clear-groups"] if os.geteuid() == 0 else []
    none = ["--bounding-set=-all", "--inh-caps=-all", "--ambient-caps=-all", "--no-new-privs"]
    return [tool("setpriv", "util-linux"), *changed, *none]


def _opened(paths: Sequence[Path], place: Path) -> list[str]:
    """Lets everybody reach these, also behind directories that only their owner may enter."""
    before, closed, after = [], [], []
    for number, path in enumerate(path.resolve() for path in paths):
        found = [each for each in reversed(path.parents) if not each.stat().st_mode & stat.S_IXOTH]
        if found:
            spare = place / f"spare-{number}"
            spare.mkdir()
            before.append(shlex.join(["mount", "--bind", str(path), str(spare)]))
            closed.append(shlex.join(["mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", str(found[0])]))
            after.append(shlex.join(["mkdir", "-p", str(path)]))
            after.append(shlex.join(["mount", "--bind", str(spare), str(path)]))
    return [*before, *dict.fromkeys(closed), *after]
