"""Does a known vulnerability fail the checks, and nothing else, and is it said where none was looked for?"""

import json
import sys

import pytest

from tests import audit

SOUND = {"name": "h11", "version": "0.16.0", "vulns": []}
UNSOUND = {
    "name": "h11",
    "version": "0.14.0",
    "vulns": [{"id": "CVE-2025-43859", "fix_versions": ["0.16.0"], "aliases": [], "description": "chunks"}],
}
UNKNOWN = {"name": "starlette", "skip_reason": "Dependency not found on PyPI"}


def audited(*packages: object) -> int:
    return audit.main({"here": says(f"print({json.dumps({'dependencies': packages})!r})")})


def says(program: str) -> tuple[str, ...]:
    return (sys.executable, "-c", program)


def test_a_known_vulnerability_fails_and_says_what_mends_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert audited(SOUND, UNSOUND) == 1
    assert capsys.readouterr().out.splitlines() == [
        "here: h11 0.14.0 has CVE-2025-43859, fixed in 0.16.0",
        "here: 2 packages checked, known vulnerabilities: 1",
    ]


def test_none_is_a_success(capsys: pytest.CaptureFixture[str]) -> None:
    assert audited(SOUND) == 0
    assert capsys.readouterr().out == "here: 1 packages checked, known vulnerabilities: 0\n"


def test_one_audit_that_fails_is_enough() -> None:
    sound, unsound = (
        says(f"print({json.dumps({'dependencies': [package]})!r})") for package in (SOUND, UNSOUND)
    )
    assert audit.main({"one": unsound, "two": sound}) == 1
    assert audit.main({"one": sound, "two": sound}) == 0


def test_it_is_said_what_was_not_checked(capsys: pytest.CaptureFixture[str]) -> None:
    assert audited(SOUND, UNKNOWN) == 0
    assert capsys.readouterr().out.splitlines()[1] == f"here: {audit.NOT_CHECKED} for 1 packages"
    assert audited(UNSOUND, UNKNOWN) == 1


def test_where_no_advisories_come_nothing_is_said_to_be_sound(capsys: pytest.CaptureFixture[str]) -> None:
    assert audited(UNKNOWN, UNKNOWN) == 0
    assert capsys.readouterr().out == f"here: {audit.NOT_CHECKED} for 2 packages\n"


def test_without_a_network_it_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    failure = "raise SystemExit('requests.exceptions.ProxyError: Unable to connect to proxy')"
    assert audit.main({"here": says(failure)}) == 0
    assert capsys.readouterr().out.startswith(f"here: {audit.NOT_CHECKED}: requests")


def test_a_network_that_swallows_everything_ends_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(audit, "TIMEOUT_S", 0.2)
    assert audit.main({"here": says("import threading; threading.Event().wait()")}) == 0
    assert capsys.readouterr().out == f"here: {audit.NOT_CHECKED} within 0.2 s\n"


def test_an_audit_that_is_broken_fails(capsys: pytest.CaptureFixture[str]) -> None:
    assert audit.main({"here": says("raise SystemExit('No module named pip_audit')")}) == 1
    assert audit.main({"here": says("pass")}) == 1
    assert capsys.readouterr().err.splitlines() == [
        "here: pip-audit failed: No module named pip_audit",
        "here: pip-audit failed: it said nothing",
    ]


@pytest.mark.parametrize("name", audit.AUDITS)
def test_what_is_asked_of_pip_audit_is_understood(name: str) -> None:
    assert audit.main({name: (*audit.AUDITS[name], "--dry-run")}) == 0
