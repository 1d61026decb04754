"""Which fixtures are those of the end-to-end tests?"""

from tests.e2e.conftest import either_lane

__all__ = ["either_lane"]
