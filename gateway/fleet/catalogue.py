"""Which models are there, and under which names? From the configuration and from what workers report."""

import time
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import msgspec

from gateway.model import Model


class Card(msgspec.Struct):
    """A model as a worker's /v1/models tells of it, without `root`, which is a path on its disk."""

    id: str
    created: int = 0
    owned_by: str = "vllm"
    parent: str | None = None  # of a LoRA adapter: the model that it adapts
    max_model_len: int | None = None


def lengths(cards: Iterable[Card]) -> dict[str, int]:
    """The context of each model that a worker tells of, in tokens; an adapter has that of its model."""
    known = {card.id: card for card in cards}
    told = {name: card.max_model_len or _length(known.get(card.parent or "")) for name, card in known.items()}
    return {name: length for name, length in told.items() if length}


class Catalogue:
    """Models by every name that callers may use; stays whole while workers are down."""

    def __init__(self, models: Mapping[Model, Iterable[str]]) -> None:
        """models: each with its aliases."""
        self._told: dict[str, list[Card]] = {}  # by worker, as each last told
        self._reported: dict[str, Card] = {}  # by model: of several, the one of the longest context
        self._born = int(time.time())
        self._by_name: dict[str, Model] = {}
        self.replace(models)

    def replace(self, models: Mapping[Model, Iterable[str]]) -> None:
        """These are the models from now on, each with its aliases."""
        self._configured = {model.name: model for model in models}
        self._aliases = {alias: model.name for model, aliases in models.items() for alias in aliases}
        self._take_in()

    def forget(self, worker_id: str) -> None:
        """A worker is there no longer."""
        self._told.pop(worker_id, None)
        self._take_in()

    def find(self, name: str) -> Model | None:
        return self._by_name.get(name)

    def report(self, worker_id: str, cards: Iterable[Card]) -> frozenset[str]:
        """Take in what a worker says it serves; returns the names among it that callers may use."""
        known = [card for card in cards if self._is_known(card)]
        self._told[worker_id] = known
        self._take_in()
        return frozenset(card.id for card in known)

    def _is_known(self, card: Card) -> bool:
        return card.id in self._configured or card.parent in self._configured

    def _take_in(self) -> None:
        told = sorted((card for cards in self._told.values() for card in cards), key=_length)
        # What one has ceased to tell stays as it was: models do not vanish while workers restart.
        self._reported |= {card.id: card for card in told}
        self._reported = {id: card for id, card in self._reported.items() if self._is_known(card)}
        self._index()

    def cards(self) -> list[dict[str, Any]]:
        """The entries of GET /v1/models, aliases included, each name once."""
        return [self.card(name) for name in self._by_name]

    def card(self, name: str) -> dict[str, Any]:
        """One entry. The name must be known."""
        model = self._by_name[name]
        reported = self._reported.get(model.name)
        card: dict[str, Any] = {
            "id": name,
            "object": "model",
            "created": (reported and reported.created) or self._born,
            "owned_by": reported.owned_by if reported else "vllm",
            "max_model_len": model.max_model_len,
        }
        if reported and reported.parent:
            card["parent"] = reported.parent
        return card

    def _index(self) -> None:
        by_name = {name: self._model(name) for name in (*self._configured, *self._reported)}
        self._by_name = by_name | {alias: by_name[name] for alias, name in self._aliases.items()}

    def _model(self, name: str) -> Model:
        reported = self._reported.get(name)
        base = self._configured.get(name) or self._configured[reported.parent or "" if reported else ""]
        length = base.max_model_len or self._reported_length(name) or self._reported_length(base.name)
        return replace(base, name=name, max_model_len=length)

    def _reported_length(self, name: str) -> int | None:
        """What workers say of a model; of an adapter they say nothing."""
        card = self._reported.get(name)
        return card.max_model_len if card else None


def _length(card: Card | None) -> int:
    return (card and card.max_model_len) or 0
