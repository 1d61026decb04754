"""Is anything known to be vulnerable that is installed, or in the image? `python -m tests.audit` asks PyPI.

Where those cannot be had, as without the network or through a mirror that does not pass them on, it says that
nothing was checked, and is no failure: this says something about the place, not about the packages.
"""

import json
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

LOCKED = Path(__file__).resolve().parents[1] / "deploy" / "requirements.txt"
TIMEOUT_S = 120  # for all packages; a network that swallows what is sent would hold up the checks for longer
AUDIT = (sys.executable, "-m", "pip_audit", "--progress-spinner=off", "--format=json")
AUDITS = {
    "installed here": (*AUDIT, "--local", "--skip-editable"),
    "in the image": (*AUDIT, "--require-hashes", "--disable-pip", f"--requirement={LOCKED}"),
}
NO_NETWORK = re.compile(r"requests\.exceptions\.|ConnectionError|ServiceError")
NOT_CHECKED = "NOT CHECKED: advisory data was not to be had"


def main(audits: Mapping[str, Sequence[str]] = AUDITS) -> int:
    """Returns 1 if there is a finding, or if what looks for them is broken."""
    failed = [name for name, command in audits.items() if not _passes(name, command)]
    return int(failed != [])


def _passes(name: str, command: Sequence[str]) -> bool:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired:
        print(f"{name}: {NOT_CHECKED} within {TIMEOUT_S} s")
        return True
    if done.stdout:
        return _tell(name, json.loads(done.stdout)["dependencies"])
    reason = (done.stderr.splitlines() or ["it said nothing"])[-1]
    if NO_NETWORK.search(reason):
        print(f"{name}: {NOT_CHECKED}: {reason}")
        return True
    print(f"{name}: pip-audit failed: {reason}", file=sys.stderr)
    return False


def _tell(name: str, packages: Sequence[dict[str, Any]]) -> bool:
    skipped = [package["name"] for package in packages if "skip_reason" in package]
    checked = [package for package in packages if "skip_reason" not in package]
    findings = [(package, hole) for package in checked for hole in package["vulns"]]
    for package, hole in findings:
        fixed = ", ".join(hole["fix_versions"]) or "no version yet"
        print(f"{name}: {package['name']} {package['version']} has {hole['id']}, fixed in {fixed}")
    if checked:
        print(f"{name}: {len(checked)} packages checked, known vulnerabilities: {len(findings)}")
    if not checked or skipped:
        print(f"{name}: {NOT_CHECKED} for {len(skipped)} packages")
    return not findings


if __name__ == "__main__":
    sys.exit(main())
