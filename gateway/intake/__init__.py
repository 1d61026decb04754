"""What does a request ask for, how large is it, and which bytes go to the worker?"""

import re
from bisect import bisect_right
from collections.abc import Sequence
from typing import Protocol

from gateway import settings
from gateway.errors import BadRequest, ModelNotAllowed, ModelNotFound
from gateway.intake import edits, output, rules, schema, sizing
from gateway.model import Caller, Incoming, Job, Model

_HARMLESS_NAME = re.compile(r"[A-Za-z0-9._:/@-]{1,200}")


class Catalogue(Protocol):
    """Which models exist."""

    def find(self, name: str) -> Model | None:
        """The model of that name or alias, configured or reported by a worker."""


class Intake:
    """Reads bodies. `bucket_edges`: prompt tokens at which a longer bucket begins, rising."""

    def __init__(self, rules: settings.Intake, bucket_edges: Sequence[int], catalogue: Catalogue) -> None:
        self._rules = rules
        self._bucket_edges = tuple(bucket_edges)
        self._catalogue = catalogue
        self._averages = sizing.Averages()

    def read(self, incoming: Incoming, body: bytes | bytearray, caller: Caller) -> Job:
        """Raises BadRequest, ModelNotFound or ModelNotAllowed.

        The job's body holds views of a large `body`, which must then stay as it is.
        """
        asked = schema.decode(body, incoming.endpoint)
        model = self._model(asked.model, caller)
        rules.check(asked, self._rules)
        size = sizing.measure(asked, model, self._averages.bytes_per_token(model.name))
        maximum = output.settle(asked, model)
        added = edits.members(
            asked, incoming=incoming, caller=caller, model=model, maximum=maximum, rules=self._rules
        )
        return Job(
            id=incoming.id,
            endpoint=incoming.endpoint,
            caller=caller,
            model=model.name,
            stream=bool(asked.stream),
            wants_usage=edits.asked_for_usage(asked),
            prompt_tokens=sum(size.tokens),
            prompt_bytes=size.text_bytes,
            max_output_tokens=output.total(maximum, size.tokens, asked.n or 1, model),
            max_tokens_given=maximum.given,
            bucket=bisect_right(self._bucket_edges, max(size.tokens)),
            body=edits.append(body, added),
        )

    def learn(self, job: Job, prompt_tokens: int) -> None:
        """Corrects later estimates for the job's model by the worker's own count."""
        self._averages.learn(job.model, job.prompt_bytes, prompt_tokens)

    def _model(self, name: str, caller: Caller) -> Model:
        if not name:
            raise BadRequest("'model' is empty. GET /v1/models lists the models there are.", param="model")
        model = self._catalogue.find(name)
        if model is None:
            known = f"model '{name}'" if _HARMLESS_NAME.fullmatch(name) else "model"
            message = f"The {known} does not exist. GET /v1/models lists the models there are."
            raise ModelNotFound(message, param="model")
        allowed = caller.tenant.models
        if "*" not in allowed and name not in allowed and model.name not in allowed:
            message = f"This key may not use the model '{name}'. GET /v1/models lists those that it may use."
            raise ModelNotAllowed(message, param="model")
        return model
