"""What do tests of configurations start from? A file that is in order, and files that are not."""

from pathlib import Path

from tests.conftest import KEY, sha256

BROKEN = sorted((Path(__file__).parent / "broken").glob("*.toml"))
NAMES = [path.stem for path in BROKEN]

ANY_PORT = "[server]\nport = 0\nadmin_port = 0\n"
GOOD = f"""
[[models]]
name = "smollm2"

[[workers]]
id = "w0"
url = "http://127.0.0.1:8101"
model = "smollm2"

[[tenants]]
id = "acme"

[[keys]]
id = "acme-1"
tenant = "acme"
sha256 = "{sha256(KEY)}"
"""


def expected(path: Path) -> list[str]:
    """The problems that a broken file says it has, in its `# expect:` lines."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return [line.removeprefix("# expect: ") for line in lines if line.startswith("# expect: ")]
