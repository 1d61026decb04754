"""Is pip's output told in a way that a person can follow?"""

from workers.cpu.pip import MIB, Progress


def told(*lines: str) -> list[str]:
    details: list[str] = []
    progress = Progress(details.append)
    for line in lines:
        progress.line(line)
    return details


def test_packages_are_counted_and_named() -> None:
    assert told(
        "Collecting numpy==2.3.5",
        "Processing /opt/wheels/torch-2.13.0+cpu-cp311-cp311-linux_x86_64.whl",
        "Requirement already satisfied: six in ./lib",
    ) == ["package 1: numpy==2.3.5", "package 2: torch-2.13.0+cpu", "package 3: six"]


def test_download_is_told_in_megabytes_with_the_file_s_short_name() -> None:
    assert told(
        "Collecting torch==2.13.0+cpu",
        "  Downloading https://example.org/whl/torch-2.13.0%2Bcpu-cp311-cp311-linux_x86_64.whl (190 MB)",
        f"Progress {3 * MIB} of {190 * MIB}",
    )[1:] == ["package 1: torch-2.13.0+cpu 3 of 190 MB"]


def test_small_downloads_and_other_lines_say_nothing() -> None:
    assert (
        told("  Downloading six-1.17.0-py2.py3-none-any.whl (11 kB)", "Progress 100 of 11000", "WARNING: x")
        == []
    )


def test_unpacking_tells_how_many_packages() -> None:
    assert told("Installing collected packages: a, b, c", "Installing collected packages: a") == [
        "unpacking 3 packages",
        "unpacking 1 package",
    ]
