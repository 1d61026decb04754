"""Does every setting say what it is, with a default that it takes itself?"""

import math
from typing import get_type_hints

import pytest
from pydantic import ValidationError

from gateway.configuration import SECTIONS, TABLES
from gateway.settings import Section, Server, Settings
from tests.gateway.settings.accepting import FIELDS, NUMBERS, accepts


@pytest.mark.parametrize(("kind", "name"), FIELDS, ids=lambda value: getattr(value, "__name__", value))
def test_a_setting_says_what_it_is_in_a_sentence(kind: type[Section], name: str) -> None:
    description = kind.model_fields[name].description

    assert description
    assert description.endswith(".")


@pytest.mark.parametrize(("kind", "name"), FIELDS, ids=lambda value: getattr(value, "__name__", value))
def test_a_default_is_within_its_own_bounds(kind: type[Section], name: str) -> None:
    field = kind.model_fields[name]

    assert field.is_required() or accepts(kind, **{name: field.get_default()})


@pytest.mark.parametrize(("kind", "name"), NUMBERS, ids=lambda value: getattr(value, "__name__", value))
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, -1])
def test_no_number_is_without_end_or_negative(kind: type[Section], name: str, value: float) -> None:
    assert not accepts(kind, **{name: value})


def test_a_duration_has_its_unit_in_its_name() -> None:
    shares = {"tenant_queue_share", "tenant_flight_share", "weight"}

    assert all(name.endswith("_s") for _, name in NUMBERS if name not in shares)


def test_settings_cannot_be_changed_nor_grow() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        Server().port = 1
    assert not accepts(Server, prot=1)


def test_every_section_and_table_is_known_by_its_class() -> None:
    assert {*SECTIONS, *TABLES} == get_type_hints(Settings).keys() - {"model_config"}
    assert set(TABLES) == {"models", "workers", "tenants", "keys"}
