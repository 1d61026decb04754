"""Does a file, with the environment laid over it, become the settings it says?"""

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from gateway.configuration import ConfigurationError, effective, load, parse
from gateway.settings import Section, Settings
from tests.gateway.configuration.files import BROKEN, GOOD, NAMES, expected

NOTHING: Mapping[str, str] = {}


def settings_of(text: str = "", environ: Mapping[str, str] = NOTHING) -> Settings:
    return parse(tomllib.loads(text + GOOD), environ)


def problems_of(text: str = "", environ: Mapping[str, str] = NOTHING) -> list[str]:
    with pytest.raises(ConfigurationError) as caught:
        settings_of(text, environ)
    return caught.value.problems


def value_of(settings: Settings, path: str) -> Any:
    section, _, field = path.partition(".")
    return getattr(getattr(settings, section), field)


# The file


@pytest.mark.parametrize("file", BROKEN, ids=NAMES)
def test_a_broken_file_has_all_the_problems_that_it_expects(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(file.parent)

    with pytest.raises(ConfigurationError) as caught:
        load(Path(file.name), NOTHING)

    assert caught.value.problems == expected(file)
    assert str(caught.value) == "\n".join(expected(file))


def test_every_kind_of_problem_has_its_broken_file() -> None:
    assert len(BROKEN) >= 25
    assert all(expected(file) for file in BROKEN)


def test_a_file_that_is_missing_is_named(tmp_path: Path) -> None:
    path = tmp_path / "none.toml"

    with pytest.raises(ConfigurationError) as caught:
        load(path, NOTHING)

    assert caught.value.problems == [
        f"{path}: cannot be read: No such file or directory. Name a file with --config"
    ]


def test_a_file_in_another_encoding_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "latin.toml"
    path.write_bytes("# café".encode("latin-1"))

    with pytest.raises(ConfigurationError) as caught:
        load(path, NOTHING)

    assert caught.value.problems == [f"{path}: not UTF-8 text. Save it as UTF-8"]


def test_a_file_in_utf8_is_read_whatever_the_locale(tmp_path: Path) -> None:
    path = tmp_path / "gateway.toml"
    path.write_text(f'[server]\ncors_origins = ["https://café.example"]\n{GOOD}', encoding="utf-8")

    assert load(path, NOTHING).server.cors_origins == ["https://café.example"]


def test_what_is_left_out_has_its_default_and_what_is_given_holds() -> None:
    settings = settings_of("[server]\nport = 9000\n")

    assert (settings.server.port, settings.server.admin_port) == (9000, 8081)
    assert settings.workers[0].url == "http://127.0.0.1:8101"


def test_a_configuration_without_keys_passes_only_where_none_are_needed() -> None:
    raw = tomllib.loads(GOOD)
    del raw["keys"]

    assert parse(raw, NOTHING, needs_keys=False).keys == ()
    with pytest.raises(ConfigurationError, match="nobody could call"):
        parse(raw, NOTHING)


def test_a_network_may_call_where_keys_are_required() -> None:
    assert settings_of('[server]\nhost = "0.0.0.0"\n').server.host == "0.0.0.0"


def test_reading_leaves_the_raw_content_as_it_was() -> None:
    raw = tomllib.loads("[server]\nport = 9000\n" + GOOD)

    parse(raw, {"GATEWAY_SERVER_PORT": "9001", "GATEWAY_AUTH_REQUIRED": "true"})

    assert raw == tomllib.loads("[server]\nport = 9000\n" + GOOD)


# The environment


@pytest.mark.parametrize(
    ("variable", "text", "path", "value"),
    [
        ("GATEWAY_SERVER_PORT", "9000", "server.port", 9000),
        ("GATEWAY_SERVER_DRAIN_S", "0.5", "server.drain_s", 0.5),
        ("GATEWAY_SERVER_KEEP_ALIVE_S", "90", "server.keep_alive_s", 90.0),
        ("GATEWAY_INTAKE_ALLOW_CHAT_TEMPLATE", "true", "intake.allow_chat_template", True),
        ("GATEWAY_ROUTING_BUCKET_EDGES", "[512, 4096]", "routing.bucket_edges", [512, 4096]),
        ("GATEWAY_ROUTING_BUCKET_EDGES", "[]", "routing.bucket_edges", []),
        ("GATEWAY_ROUTING_POLICY", "least_work", "routing.policy", "least_work"),
        ("GATEWAY_ROUTING_MAX_PREFILLS", "8", "routing.max_prefills", 8),
        ("GATEWAY_ROUTING_PREFIX_AFFINITY", "false", "routing.prefix_affinity", False),
        ("GATEWAY_SERVER_CORS_ORIGINS", '["*"]', "server.cors_origins", ["*"]),
        ("GATEWAY_SERVER_HOST", "::1", "server.host", "::1"),
        ("GATEWAY_SERVER_HOST", "1", "server.host", "1"),
        ("GATEWAY_SERVER_HOST", "true", "server.host", "true"),
        ("GATEWAY_UPSTREAM_CA_FILE", "", "upstream.ca_file", ""),
        ("GATEWAY_SERVER_PORT", " 9000 ", "server.port", 9000),
    ],
)
def test_a_variable_sets_one_field(variable: str, text: str, path: str, value: object) -> None:
    found = value_of(settings_of("", {variable: text}), path)

    assert found == value
    assert type(found) is type(value)


def test_a_secret_that_looks_like_a_number_stays_text() -> None:
    settings = settings_of("", {"GATEWAY_AUTH_CACHE_SALT_SECRET": "1234"})

    assert settings.auth.cache_salt_secret.get_secret_value() == "1234"


def test_a_variable_beats_the_file_and_leaves_the_rest_of_its_section() -> None:
    settings = settings_of("[server]\nport = 9000\ndrain_s = 7\n", {"GATEWAY_SERVER_PORT": "9001"})

    assert (settings.server.port, settings.server.drain_s) == (9001, 7)


def test_variables_of_other_programs_are_nothing_to_us() -> None:
    assert settings_of("", {"PATH": "/bin", "MY_GATEWAY_SERVER_PORT": "1", "GATEWAY": "x"}) == settings_of()


@pytest.mark.parametrize(
    ("variable", "problem"),
    [
        ("GATEWAY_SERVER_PROT", "unknown setting; did you mean GATEWAY_SERVER_PORT?"),
        ("GATEWAY_SEVER_PORT", "unknown section; did you mean GATEWAY_SERVER?"),
        ("GATEWAY_SERVER", "unknown setting; known: GATEWAY_SERVER_ADMIN_HOST, GATEWAY_SERVER_ADMIN_PORT, "),
        (
            "GATEWAY_STORE_QQQ",
            "known: GATEWAY_STORE_CA_FILE, GATEWAY_STORE_ON_FAILURE, GATEWAY_STORE_PREFIX, ",
        ),
        ("GATEWAY_KEYS_ID", "unknown section; known: GATEWAY_ADMIN, GATEWAY_ADMISSION, GATEWAY_AUTH, "),
        ("GATEWAY_", "unknown section; known: GATEWAY_ADMIN, GATEWAY_ADMISSION, GATEWAY_AUTH, "),
    ],
)
def test_an_unknown_variable_is_refused_with_a_name_that_was_meant(variable: str, problem: str) -> None:
    (found,) = problems_of("", {variable: "1"})

    assert found.startswith(f"{variable}: unknown")
    assert problem in found


@pytest.mark.parametrize(
    ("variable", "text", "problem"),
    [
        ("GATEWAY_SERVER_PORT", "http", 'server.port = "http": must be a whole number.'),
        ("GATEWAY_SERVER_PORT", "", 'server.port = "": must be a whole number.'),
        ("GATEWAY_SERVER_PORT", "70000", "server.port = 70000: must be at most 65535."),
        ("GATEWAY_SERVER_PORT", "8081", "server.admin_port = 8081: is the public port too"),
        ("GATEWAY_AUTH_REQUIRED", "False", 'auth.required = "False": must be true or false.'),
        ("GATEWAY_STORE_TIMEOUT_MS", "1.5", "store.timeout_ms = 1.5: must be a whole number."),
        ("GATEWAY_ROUTING_POLICY", "true", 'routing.policy = "true": must be'),
        ("GATEWAY_STORE_URL", "7", 'store.url = "7": must be "memory://", "redis://'),
        ("GATEWAY_SERVER_CORS_ORIGINS", "https://a", 'server.cors_origins = "https://a": must be a list'),
    ],
)
def test_a_variable_that_cannot_hold_is_reported_by_its_field(variable: str, text: str, problem: str) -> None:
    (found,) = problems_of("", {variable: text})

    assert found.startswith(problem)


def test_a_problem_says_which_variable_it_came_from() -> None:
    (found,) = problems_of("[server]\nport = 9000\n", {"GATEWAY_SERVER_PORT": "http"})
    (of_file,) = problems_of("[server]\nport = 0.5\n", {"GATEWAY_SERVER_ADMIN_PORT": "9001"})

    assert found.endswith(" (set by GATEWAY_SERVER_PORT)")
    assert not of_file.endswith(")")


def test_a_variable_mends_no_section_that_is_no_table() -> None:
    raw = tomllib.loads("server = 1\n" + GOOD)

    with pytest.raises(ConfigurationError) as caught:
        parse(raw, {"GATEWAY_SERVER_PORT": "9000"})

    assert caught.value.problems == ["server = 1: is no table; write [server] and its fields below"]


# What is in effect


def test_every_setting_is_listed_in_the_order_of_the_classes() -> None:
    settings = settings_of("[routing]\nbucket_edges = [512]\n")

    paths = [line.partition(" = ")[0] for line in effective(settings)]

    wanted = []
    for name, value in settings:
        for place, section in [(name, value)] if isinstance(value, Section) else [(f"{name}[0]", value[0])]:
            wanted += [f"{place}.{field}" for field in type(section).model_fields]
    assert paths == wanted


@pytest.mark.parametrize(
    "line",
    [
        'server.host = "127.0.0.1"',
        "server.port = 9000",
        "auth.required = true",
        "routing.bucket_edges = [1024, 8192]",
        "models[0].max_model_len = (none)",
        'tenants[0].models = ["*"]',
    ],
)
def test_a_setting_is_shown_as_toml_would_have_it(line: str) -> None:
    assert line in list(effective(settings_of("[server]\nport = 9000\n")))


def test_a_long_value_in_effect_is_shown_whole() -> None:
    origins = [f"https://{number}.example" for number in range(50)]

    lines = effective(settings_of(f"[server]\ncors_origins = {origins}\n"))

    assert any(line.endswith('"https://49.example"]') for line in lines)


def test_a_secret_in_effect_is_hidden_and_its_absence_shown() -> None:
    hidden = list(effective(settings_of('[auth]\ncache_salt_secret = "hunter2"\n')))

    assert 'auth.cache_salt_secret = "(hidden)"' in hidden
    assert "hunter2" not in "\n".join(hidden)
    assert 'auth.cache_salt_secret = ""' in list(effective(settings_of()))
