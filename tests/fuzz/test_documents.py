"""Does each port answer as its document says, whatever is asked of it, and with no failure of its own?

Requests are made up from the documents: half of them as they say, half of them not.
"""

import asyncio
from collections import defaultdict
from typing import Any

import requests
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schemathesis import APIOperation, Case, GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi import checks

from tests.conftest import KEY, MODEL, configuration, served, sha256
from tests.fakes import FakeWorker

ADMIN_KEY = "sk-admin-0123456789abcdefghijklmnopqrstuvwxyz"
# What exists, or hardly anything asked for would be found.
OURS = {"model": MODEL, "tenant": "acme"}
IDS = {"keys": "acme-1", "tenants": "acme", "workers": "w0"}
NOWHERE = {"url": "http://127.0.0.1:9", "address": "127.0.0.1"}
PLAIN = {"model", "messages", "prompt", "stream"}  # of a completion that is served
EXAMPLES = 25  # of an operation, of either kind
AnyCase = Case[Any]
Statuses = dict[str, set[int]]

OF_ALL = [
    not_a_server_error,
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_headers_conformance,
]
OF_OBJECTS = checks.response_schema_conformance  # events of a stream have no schema: they are vLLM's
OF_BODIES = checks.negative_data_rejection  # what a query has besides is not read


def try_all(url: str, described_at: str, key: str) -> Statuses:
    """Raises what schemathesis found. Returns with which statuses each operation was answered."""
    statuses: Statuses = defaultdict(set)
    with requests.Session() as session:
        session.trust_env = False
        document = schemathesis.openapi.from_dict(session.get(described_at).json())
        session.headers["authorization"] = f"Bearer {key}"
        for found in document.get_all_operations():
            operation: APIOperation[Any, Any, Any, Any] = found.ok()  # type: ignore[union-attr]
            for mode in GenerationMode if operation.body else [GenerationMode.POSITIVE]:
                _try(operation.as_strategy(mode), url, session, statuses[operation.label])
    return statuses


def _try(cases: st.SearchStrategy[AnyCase], url: str, session: requests.Session, statuses: set[int]) -> None:
    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(cases, st.booleans())
    def answers_as_documented(case: AnyCase, is_of_ours: bool) -> None:
        wanted = [*OF_ALL]
        if is_of_ours and case.meta is not None and case.meta.generation.mode is GenerationMode.POSITIVE:
            _make_ours(case)
        if not _lead_nowhere(case) and case.operation.body:
            wanted.append(OF_BODIES)
        response = case.call(base_url=url, session=session)
        if response.headers["content-type"] != ["text/event-stream; charset=utf-8"]:
            wanted.append(OF_OBJECTS)
        case.validate_response(response, checks=wanted)
        statuses.add(response.status_code)

    answers_as_documented()


def _make_ours(case: AnyCase) -> None:
    if isinstance(case.body, dict):
        case.body |= {name: value for name, value in OURS.items() if name in case.body}
        if case.path.endswith("/completions"):
            case.body = {name: value for name, value in case.body.items() if name in PLAIN}
    if "id" in case.path_parameters:
        case.path_parameters["id"] = IDS[case.path.split("/")[2]]


def _lead_nowhere(case: AnyCase) -> bool:
    """Nobody is called by an address that is made up. Returns whether there was one."""
    body = case.body if isinstance(case.body, dict) else {}
    found = {name: harmless for name, harmless in NOWHERE.items() if name in body}
    body |= found
    return bool(found)


async def test_the_public_port_answers_as_its_document_says() -> None:
    async with FakeWorker() as worker, served(configuration(worker)) as gateway:
        described_at = f"{gateway.admin_url}/openapi/public.json"
        statuses = await asyncio.to_thread(try_all, gateway.url, described_at, KEY)
        assert {200, 400} <= statuses["POST /v1/chat/completions"] & statuses["POST /v1/completions"]


async def test_the_admin_port_answers_as_its_document_says(redis_url: str) -> None:
    of_admin = {"key_sha256": sha256(ADMIN_KEY)}
    async with (
        FakeWorker() as worker,
        served(configuration(worker, admin=of_admin, store={"url": redis_url})) as gateway,
    ):
        described_at = f"{gateway.admin_url}/openapi.json"
        statuses = await asyncio.to_thread(try_all, gateway.admin_url, described_at, ADMIN_KEY)
        assert 201 in statuses["POST /admin/keys"]
        assert 200 in statuses["PUT /admin/tenants/{id}"] & statuses["POST /admin/workers/{id}/drain"]
