"""What does a request ask for, how large is it, and which bytes go to the worker?"""

import re
from typing import Protocol

from gateway import settings
from gateway.errors import BadRequest, ModelNotAllowed, ModelNotFound
from gateway.estimates import Outputs, chain
from gateway.intake import edits, output, patience, rules, schema, sizing
from gateway.intake.lengths import Lengths
from gateway.intake.permissions import Permissions
from gateway.model import Caller, Chain, Endpoint, Incoming, Job, Model, Usage

_PROMPT_MEMBER = {Endpoint.CHAT: b'"messages"', Endpoint.COMPLETIONS: b'"prompt"'}
_HARMLESS_NAME = re.compile(r"[A-Za-z0-9._:/@-]{1,200}")


class Catalogue(Protocol):
    """Which models exist."""

    def find(self, name: str) -> Model | None:
        """The model of that name or alias, configured or reported by a worker."""


class Intake:
    """Reads bodies.

    chains: whether anybody asks which worker has a prompt in its cache.
    """

    def __init__(
        self, rules: settings.Intake, lengths: Lengths, catalogue: Catalogue, chains: bool = False
    ) -> None:
        self._permissions = Permissions(rules)
        self._lengths = lengths
        self._catalogue = catalogue
        self.chains = chains
        self._averages = sizing.Averages()
        self._outputs = Outputs()

    def read(self, incoming: Incoming, body: bytes | bytearray, caller: Caller) -> Job:
        """Raises BadRequest, ModelNotFound or ModelNotAllowed.

        The job's body holds views of a large `body`, which must then stay as it is.
        """
        asked = schema.decode(body, incoming.endpoint)
        model = self._model(asked.model, caller)
        allowed = self._permissions.of(caller.tenant)
        rules.check(asked, allowed)
        size = sizing.measure(asked, model, self._averages.bytes_per_token(model.name))
        maximum = output.settle(asked, model, caller.tenant)
        added = edits.members(
            asked, incoming=incoming, caller=caller, model=model, maximum=maximum, rules=allowed
        )
        endpoint, sequences = incoming.endpoint, (asked.n or 1) * len(size.tokens)
        most = output.total(maximum, size.tokens, asked.n or 1, model)
        expected = self._outputs.expected(caller.tenant.id, endpoint, most)
        longest = max(size.tokens)
        return Job(
            id=incoming.id,
            endpoint=endpoint,
            caller=caller,
            model=model.name,
            stream=bool(asked.stream),
            wants_usage=edits.asked_for_usage(asked),
            prompt_tokens=sum(size.tokens),
            prompt_bytes=size.text_bytes,
            max_output_tokens=most,
            max_tokens_given=maximum.given,
            expected_output_tokens=expected,
            sequences=sequences,
            bucket=self._lengths.bucket(longest),
            is_long=self._lengths.is_long(longest),
            body=edits.append(body, added),
            max_wait_s=patience.max_wait_s(incoming.fields),
            context_tokens=sizing.safe_length(size) + (maximum.tokens or expected // sequences),
            chain=self._chain(asked, body, incoming, caller, model, size) if self.chains else None,
        )

    def learn(self, job: Job, usage: Usage) -> None:
        """Corrects later estimates by the worker's own counts."""
        self._averages.learn(job.model, job.prompt_bytes, usage.prompt_tokens)
        self._lengths.note(usage.prompt_tokens)
        self._outputs.learn(job.caller.tenant.id, job.endpoint, usage.completion_tokens)

    def _chain(
        self,
        asked: schema.ChatBody | schema.CompletionBody,
        body: bytes | bytearray,
        incoming: Incoming,
        caller: Caller,
        model: Model,
        size: sizing.Size,
    ) -> Chain | None:
        """By the body's bytes from the prompt on: what follows the prompt is short beside one that counts.

        Several prompts are no one chain, and one that the worker cuts loses its beginning.
        """
        if len(size.tokens) > 1 or asked.truncate_prompt_tokens is not None:
            return None
        began = max(body.find(_PROMPT_MEMBER[incoming.endpoint]), 0)
        return chain(f"{caller.cache_salt} {model.name}", memoryview(body)[began:], size.tokens[0])

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
