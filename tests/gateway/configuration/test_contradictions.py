"""Are problems found that no single field can tell, and none that are not there?"""

import tomllib
from collections.abc import Mapping
from pathlib import Path

import pytest
import trustme

from gateway.configuration import ConfigurationError, parse
from tests.gateway.configuration.files import GOOD


def problems(text: str, environ: Mapping[str, str] | None = None) -> list[str]:
    """Those of a configuration; none if it is in order."""
    try:
        parse(tomllib.loads(text), environ or {})
    except ConfigurationError as error:
        return error.problems
    return []


def worker(name: str, **fields: object) -> str:
    lines = {"id": f'"{name}"', "url": f'"http://{name}"', "model": '"smollm2"'} | fields
    return "\n[[workers]]\n" + "".join(f"{field} = {value}\n" for field, value in lines.items())


def test_an_item_is_named_by_its_place_in_the_file_whatever_precedes_it() -> None:
    found = problems(GOOD + worker("bad", url='"ftp://x"') + worker("w2") + worker("w3", model='"smol"'))

    assert [problem.partition(" ")[0] for problem in found] == ["workers[1].url", "workers[3].model"]


def test_an_item_with_one_bad_field_has_its_other_fields_looked_at() -> None:
    found = problems(GOOD + worker("w0", url='"ftp://x"', model='"smol"'))

    assert [problem.partition(" ")[0] for problem in found] == [
        "workers[1].url",
        "workers[1].id",
        "workers[1].model",
    ]


@pytest.mark.parametrize(
    ("right", "wrong", "fields"),
    [
        ('name = "smollm2"', 'nmae = "smollm2"', ["models[0].nmae:", "models[0].name:"]),
        ('name = "smollm2"', 'name = "smollm2"\naliases = 3', ["models[0].aliases"]),
        ('[[tenants]]\nid = "acme"', "[[tenants]]\nid = 3", ["tenants[0].id"]),
        ('model = "smollm2"', "model = 3", ["workers[0].model"]),
        ('tenant = "acme"', "tenant = 3", ["keys[0].tenant"]),
        ("sha256", "sha", ["keys[0].sha:", "keys[0].sha256:"]),
    ],
)
def test_a_field_at_fault_causes_no_second_problem(right: str, wrong: str, fields: list[str]) -> None:
    assert right in GOOD

    found = problems(GOOD.replace(right, wrong))

    assert [problem.partition(" ")[0] for problem in found] == fields


def test_one_model_without_a_name_leaves_open_what_others_refer_to() -> None:
    found = problems(GOOD + "\n[[models]]\n" + worker("w1", model='"other"'))

    assert [problem.partition(" ")[0] for problem in found] == ["models[1].name:"]


def test_a_default_contradicts_as_well_as_a_given_value_also_beside_a_bad_field() -> None:
    found = problems('[server]\nport = 8081\ndrain_s = "30s"\n' + GOOD)

    assert [problem.partition(" ")[0] for problem in found] == ["server.drain_s", "server.admin_port"]


@pytest.mark.parametrize("table", ["models", "workers", "tenants", "keys"])
def test_a_table_at_fault_causes_no_second_problem(table: str) -> None:
    raw = tomllib.loads(GOOD) | {table: 3}

    with pytest.raises(ConfigurationError) as caught:
        parse(raw, {})

    (found,) = caught.value.problems
    assert f"write [[{table}]], in double brackets" in found


@pytest.mark.parametrize(
    "section",
    [
        '[server]\nport = "8081"',
        "[server]\nport = 0\nadmin_port = 0",
        "[server]\nhost = 3\n[auth]\nrequired = false",
        '[server]\nhost = "0.0.0.0"\n[auth]\nrequired = "no"',
        '[server]\nprocesses = "2"',
        "[upstream]\nca_file = 3",
    ],
)
def test_a_section_at_fault_causes_no_second_problem(section: str) -> None:
    found = problems(section + GOOD)

    assert all(": must be " in problem for problem in found)
    assert len(found) == (0 if "admin_port = 0" in section else 1)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "::1", "localhost"])
def test_anyone_may_call_on_loopback(host: str) -> None:
    assert problems(f'[auth]\nrequired = false\n[server]\nhost = "{host}"\n' + GOOD) == []


@pytest.mark.parametrize("host", ["", "0.0.0.0", "::", "10.0.0.7", "gateway.example", "127.0.0.1.example"])
def test_not_anyone_may_call_from_elsewhere(host: str) -> None:
    (found,) = problems(f'[auth]\nrequired = false\n[server]\nhost = "{host}"\n' + GOOD)

    assert found.startswith(f'auth.required = false: on server.host = "{host}" everyone on the network')


@pytest.mark.parametrize("table", ["tenants", "keys"])
def test_both_tenants_and_keys_are_needed_to_call(table: str) -> None:
    raw = tomllib.loads(GOOD)
    del raw[table]

    with pytest.raises(ConfigurationError, match="nobody could call"):
        parse(raw, {})


def test_a_tenant_may_use_a_model_by_name_or_alias_or_all() -> None:
    text = GOOD.replace('name = "smollm2"', 'name = "smollm2"\naliases = ["gpt-4o-mini"]').replace(
        'id = "acme"\n', 'id = "acme"\nmodels = ["*", "smollm2", "gpt-4o-mini"]\n'
    )

    assert problems(text) == []


def test_a_worker_names_its_model_not_an_alias() -> None:
    text = GOOD.replace('name = "smollm2"', 'name = "smollm2"\naliases = ["small"]')

    (found,) = problems(text + worker("w1", model='"small"'))

    assert found.startswith('workers[1].model = "small": unknown model')


def test_a_key_of_a_tenant_that_is_not_there_is_refused_even_where_no_key_is_needed() -> None:
    raw = tomllib.loads("[auth]\nrequired = false\n" + GOOD)
    del raw["tenants"]

    with pytest.raises(ConfigurationError) as caught:
        parse(raw, {})

    assert caught.value.problems == ['keys[0].tenant = "acme": unknown tenant; known: none']


def test_lengths_that_fit_are_no_problem() -> None:
    lengths = "max_model_len = 2048\ndefault_max_tokens = 256\nmax_output_tokens = 256\n"

    assert problems(GOOD.replace('name = "smollm2"\n', f'name = "smollm2"\n{lengths}')) == []


@pytest.mark.parametrize("value", ["", "sk secret", "sk-secret\n", "sk-secret\t", "sk-sécret"])
def test_a_worker_key_that_no_header_can_hold_is_refused_and_not_shown(value: str) -> None:
    (found,) = problems(GOOD + worker("w1", api_key_env='"W1_KEY"'), {"W1_KEY": value})

    assert found.startswith('workers[1].api_key_env = "W1_KEY": ')
    assert "export the worker's key in it" in found
    assert not value or value.strip() not in found


def test_a_worker_key_that_is_set_is_no_problem() -> None:
    assert problems(GOOD + worker("w1", api_key_env='"W1_KEY"'), {"W1_KEY": "sk-worker"}) == []


def test_a_file_of_certificates_is_no_problem(tmp_path: Path) -> None:
    path = tmp_path / "ca.pem"
    trustme.CA().cert_pem.write_to_path(str(path))

    assert problems(f'[upstream]\nca_file = "{path}"\n' + GOOD) == []


def test_a_folder_is_no_file_of_certificates(tmp_path: Path) -> None:
    assert problems(f'[upstream]\nca_file = "{tmp_path}"\n' + GOOD) == [
        f'upstream.ca_file = "{tmp_path}": Is a directory; name a PEM file of certificates'
    ]
