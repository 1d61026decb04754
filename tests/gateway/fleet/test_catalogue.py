"""Does the catalogue know each model by every name, and keep to itself what callers need not know?"""

import time

import msgspec
import pytest

from gateway.fleet import Catalogue
from gateway.fleet.catalogue import Card, lengths
from gateway.model import Model

LONG = Model("long", max_model_len=131072, default_max_tokens=256, max_output_tokens=4096)
OPEN = Model("open")


def catalogue() -> Catalogue:
    return Catalogue({LONG: ["gpt-4o", "gpt-4o-mini"], OPEN: []})


def test_a_model_is_found_by_its_name_and_by_each_alias() -> None:
    known = catalogue()
    assert [known.find(name) for name in ("long", "gpt-4o", "gpt-4o-mini", "open")] == [
        LONG,
        LONG,
        LONG,
        OPEN,
    ]


@pytest.mark.parametrize("name", ["nope", "", "Long", "long "])
def test_no_other_name_is_known(name: str) -> None:
    assert catalogue().find(name) is None


def test_models_are_listed_with_their_aliases_also_before_any_worker_reports() -> None:
    before = int(time.time())
    cards = catalogue().cards()
    assert [card["id"] for card in cards] == ["long", "open", "gpt-4o", "gpt-4o-mini"]
    for card in cards:
        assert before <= card.pop("created") <= time.time()
    assert cards[0] == {"id": "long", "object": "model", "owned_by": "vllm", "max_model_len": 131072}
    assert cards[1]["max_model_len"] is None


def test_a_report_names_what_callers_may_use_of_it() -> None:
    known = catalogue()
    cards = [Card("open"), Card("adapter", parent="long"), Card("stranger"), Card("other", parent="stranger")]
    assert known.report("w0", cards) == {"open", "adapter"}
    assert known.find("stranger") is None
    assert known.find("other") is None


def test_the_length_comes_from_the_worker_where_the_configuration_leaves_it_out() -> None:
    known = catalogue()
    known.report("w0", [Card("open", created=1700000000, owned_by="acme", max_model_len=4096)])
    assert known.find("open") == Model("open", max_model_len=4096)
    assert known.card("open") == {
        "id": "open",
        "object": "model",
        "created": 1700000000,
        "owned_by": "acme",
        "max_model_len": 4096,
    }


def test_the_configured_length_holds_against_the_workers() -> None:
    known = catalogue()
    known.report("w0", [Card("long", max_model_len=4096)])
    assert known.find("long") == LONG
    assert known.card("gpt-4o")["max_model_len"] == 131072


def test_an_alias_shows_its_models_card_under_its_own_name() -> None:
    known = catalogue()
    known.report("w0", [Card("long", created=5, owned_by="acme")])
    assert known.card("gpt-4o") == known.card("long") | {"id": "gpt-4o"}
    assert known.card("gpt-4o")["created"] == 5


def test_an_adapter_is_a_model_with_the_rules_of_its_parent() -> None:
    known = catalogue()
    known.report("w0", [Card("adapter", parent="long", created=5)])
    assert known.find("adapter") == Model("adapter", 131072, 256, 4096)
    assert known.card("adapter") == {
        "id": "adapter",
        "object": "model",
        "created": 5,
        "owned_by": "vllm",
        "max_model_len": 131072,
        "parent": "long",
    }
    assert "adapter" in [card["id"] for card in known.cards()]


def test_an_adapter_of_a_model_of_unknown_length_has_the_length_it_reports() -> None:
    known = catalogue()
    known.report("w0", [Card("adapter", parent="open", max_model_len=2048)])
    assert known.find("adapter") == Model("adapter", max_model_len=2048)


def test_an_alias_is_never_taken_over_by_an_adapter_of_the_same_name() -> None:
    known = catalogue()
    known.report("w0", [Card("gpt-4o", parent="open")])
    assert known.find("gpt-4o") == LONG


def test_what_was_reported_stays_when_another_worker_reports_less() -> None:
    known = catalogue()
    known.report("w0", [Card("open", max_model_len=4096), Card("adapter", parent="long")])
    assert known.report("w0", []) == frozenset()
    assert known.find("adapter") is not None
    assert known.find("open") == Model("open", max_model_len=4096)


def test_a_workers_path_is_not_even_read() -> None:
    sent = b'{"id":"open","object":"model","root":"/secret/path","permission":[{"id":"x"}],"max_model_len":8}'
    known = catalogue()
    known.report("w0", [msgspec.json.decode(sent, type=Card)])
    assert "secret" not in str(known.cards())
    assert "root" not in known.card("open")


def test_of_workers_of_several_lengths_the_longest_counts_whoever_tells_last() -> None:
    known = catalogue()
    known.report("w0", [Card("open", max_model_len=8192)])
    known.report("w1", [Card("open", max_model_len=4096)])
    assert known.find("open") == Model("open", max_model_len=8192)
    known.report("w0", [Card("open", max_model_len=2048)])  # started anew
    assert known.find("open") == Model("open", max_model_len=4096)


def test_an_adapter_has_the_length_of_its_model_on_the_same_worker() -> None:
    cards = [
        Card("open", max_model_len=8),
        Card("adapter", parent="open"),
        Card("own", parent="open", max_model_len=4),
        Card("lost", parent="elsewhere"),
        Card("silent"),
    ]
    assert lengths(cards) == {"open": 8, "adapter": 8, "own": 4}
