"""The server's settings: one table, four sources, and the rule about who may be reached from where."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

import millpond
from millpond.cli.serve_options import with_settings
from millpond.errors import InvalidValue
from millpond.model.names import NAME_LENGTH_MAX
from millpond.model.schema import COLUMNS_MAX
from millpond.serve.settings import ServeSettings, check_exposure, is_loopback, kind_of, known_settings
from millpond.serve.settings_sources import choose, config_file

SOURCE = Path(millpond.__file__).parent
TLS = {"tls_certificate": "c.pem", "tls_key": "k.pem"}


def toml(path: Path, text: str) -> Path:
    file = path / "millpond.toml"
    file.write_text(text)
    return file


def test_the_defaults_are_the_documented_ones() -> None:
    found = choose().serve
    assert (found.host, found.port, found.flight_port, found.tokens, found.insecure) == (
        "127.0.0.1",
        7070,
        7071,
        "auto",
        False,
    )
    assert (found.request_bytes_max, found.decoded_bytes_max) == (64_000_000, 256_000_000)
    assert choose().pond == {}


def test_no_limit_is_over_what_a_stream_takes_anyway() -> None:
    found = {each.name: each for each in fields(ServeSettings)}
    assert found["columns_max"].metadata["high"] == COLUMNS_MAX
    assert found["name_length_max"].metadata["high"] == NAME_LENGTH_MAX


def test_every_setting_says_what_it_is_for() -> None:
    for each in fields(ServeSettings):
        assert each.metadata["doc"].endswith("."), each.name
        assert kind_of(each) in {"text", "choice", "list", "flag", "bytes", "seconds", "count", "number"}


def test_every_setting_is_looked_at_by_somebody() -> None:
    source = "\n".join(path.read_text() for room in ("serve", "cli") for path in (SOURCE / room).rglob("*.py"))
    assert not [
        each.name for each in fields(ServeSettings) if not re.search(rf"(settings|serve)\.{each.name}\b", source)
    ]


def test_the_command_line_goes_over_the_environment_over_the_file_over_the_default(tmp_path: Path) -> None:
    file = toml(tmp_path, '[serve]\nport = 1\nflight_port = 1\ncalls_max = 1\n[pond]\nmemory_bytes = "4GB"\n')
    found = choose({"port": "3"}, {"MILLPOND_SERVE_PORT": "2", "MILLPOND_SERVE_FLIGHT_PORT": "2"}, file)
    assert (found.serve.port, found.serve.flight_port, found.serve.calls_max) == (3, 2, 1)
    assert found.pond == {"memory_bytes": 4_000_000_000}
    assert found.sources == {
        "port": "--port",
        "flight_port": "MILLPOND_SERVE_FLIGHT_PORT",
        "calls_max": f"{file} [serve] calls_max",
        "pond.memory_bytes": f"{file} [pond] memory_bytes",
    }


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("request_bytes_max", "16MB", 16_000_000),
        ("request_bytes_max", "16000000", 16_000_000),
        ("idle_seconds", "2m", 120.0),
        ("idle_seconds", "2.5", 2.5),
        ("metrics", "off", False),
        ("insecure", "Yes", True),
        ("allowed_hosts", "a.example, b.example", ("a.example", "b.example")),
        ("allowed_hosts", "", ()),
        ("requests_per_second", "0.5", 0.5),
        ("log_level", "debug", "debug"),
    ],
)
def test_values_are_read_with_their_units(name: str, text: str, value: Any) -> None:
    assert getattr(choose(environment={f"MILLPOND_SERVE_{name.upper()}": text}).serve, name) == value
    assert getattr(choose({name: text}).serve, name) == value


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("port", "70000"),
        ("port", "-1"),
        ("port", "http"),
        ("port", "7.5"),
        ("request_bytes_max", "16 parsecs"),
        ("request_bytes_max", "1"),
        ("idle_seconds", "nan"),
        ("idle_seconds", "-5s"),
        ("tokens", "maybe"),
        ("metrics", "2"),
        ("log_format", "xml"),
        ("json_depth_max", "100000"),
        ("requests_per_second", "inf"),
    ],
)
def test_a_value_outside_its_bounds_is_refused_by_the_name_of_its_source(name: str, text: str) -> None:
    variable = f"MILLPOND_SERVE_{name.upper()}"
    with pytest.raises(InvalidValue) as caught:
        choose(environment={variable: text})
    assert variable in caught.value.message
    assert text in caught.value.message
    assert caught.value.hint


@pytest.mark.parametrize("value", [True, 1.5, [1], "x"])
def test_a_value_of_another_type_is_refused(value: Any, tmp_path: Path) -> None:
    shown = {True: "true"}.get(value, repr(value).replace("'", '"')) if not isinstance(value, list) else "[1]"
    with pytest.raises(InvalidValue, match="port"):
        choose(config=toml(tmp_path, f"[serve]\nport = {shown}\n"))


def test_an_unknown_name_is_an_error_that_names_the_nearest(tmp_path: Path) -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        ({"environment": {"MILLPOND_SERVE_PROT": "1"}}, "MILLPOND_SERVE_PORT"),
        ({"environment": {"MILLPOND_SERVE_port": "1"}}, "MILLPOND_SERVE_PORT"),
        ({"environment": {"MILLPOND_POND_MEMORY": "1"}}, "MILLPOND_POND_MEMORY_BYTES"),
        ({"config": toml(tmp_path, "[serve]\nrequest_byte_max = 5\n")}, "request_bytes_max"),
        ({"command_line": {"prot": "1"}}, "port"),
    ]
    for sources, nearest in cases:
        with pytest.raises(InvalidValue) as caught:
            choose(**sources)
        assert f"is {nearest} meant" in caught.value.hint
    with pytest.raises(InvalidValue, match="no such section"):
        choose(config=toml(tmp_path, "port = 5\n"))
    with pytest.raises(InvalidValue, match="is not TOML"):
        choose(config=toml(tmp_path, "port 5\n"))


def test_other_variables_are_left_alone() -> None:
    assert choose(environment={"MILLPOND_POND": "./pond", "MILLPOND_TOKEN": "x", "PATH": "/bin"}).sources == {}


def test_the_ponds_own_settings_are_checked_too() -> None:
    assert choose({"pond_flush_seconds": "50ms"}).pond == {"flush_seconds": 0.05}
    with pytest.raises(InvalidValue, match="memory_bytes"):
        choose({"pond_memory_bytes": "1KB"})


def test_the_file_in_the_ponds_directory_is_found(tmp_path: Path) -> None:
    assert config_file(tmp_path, None) is None
    own = toml(tmp_path, "")
    assert config_file(tmp_path, None) == own
    other = tmp_path / "other.toml"
    with pytest.raises(InvalidValue, match=r"other\.toml"):
        config_file(tmp_path, other)
    other.write_text("")
    assert config_file(tmp_path, other) == other


def test_certificate_and_key_come_together() -> None:
    for alone in ({"tls_certificate": "c.pem"}, {"tls_key": "k.pem"}, {"tls_client_roots": "r.pem"}):
        with pytest.raises(InvalidValue, match="tls_"):
            ServeSettings(**alone)  # type: ignore[arg-type]
    assert ServeSettings(**TLS).tls  # type: ignore[arg-type]


# Who may be reached from where.


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.0.1", "::1", "[::1]", "localhost", "LOCALHOST."])
def test_loopback_needs_nothing(host: str) -> None:
    assert is_loopback(host)
    check_exposure(ServeSettings(host=host, tokens="off"), tokens_exist=False)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.5", "pond.example", "", "localhost.example", "127.1"])
def test_any_other_address_needs_tokens_and_tls(host: str) -> None:
    def settings(**more: Any) -> ServeSettings:
        return ServeSettings(host=host, **more)

    assert not is_loopback(host)
    for open_, exist in (
        (settings(), False),
        (settings(), True),
        (settings(**TLS), False),
        (settings(**TLS, tokens="off"), True),
        (settings(tokens="required"), True),
    ):
        with pytest.raises(InvalidValue, match="open to other machines"):
            check_exposure(open_, exist)
    check_exposure(settings(**TLS), tokens_exist=True)
    check_exposure(settings(**TLS, tokens="required"), tokens_exist=False)
    check_exposure(settings(insecure=True, tokens="off"), tokens_exist=False)


def test_the_refusal_says_what_is_missing_and_what_insecure_gives_up() -> None:
    with pytest.raises(InvalidValue) as caught:
        check_exposure(ServeSettings(host="0.0.0.0"), tokens_exist=False)
    assert "millpond token create" in caught.value.message
    assert "--tls-certificate" in caught.value.message
    assert "do everything" in caught.value.hint
    with pytest.raises(InvalidValue) as caught:
        check_exposure(ServeSettings(host="0.0.0.0"), tokens_exist=True)
    assert "token" not in caught.value.message


@given(st.text())
def test_no_text_is_loopback_by_accident(host: str) -> None:
    if is_loopback(host):
        assert host.startswith(("127.", "::1", "[", "::ffff:127", "0:0")) or "localhost" in host.lower()


# The command line is made from the table.


def test_every_setting_is_an_option_with_its_words() -> None:
    seen: list[dict[str, Any]] = []
    app = typer.Typer(rich_markup_mode=None)

    @app.command()
    @with_settings
    def serve(pond: str, given: dict[str, Any]) -> None:
        """Serve."""
        seen.append(given)

    runner = CliRunner(env={"COLUMNS": "300", "TERMINAL_WIDTH": "300"})
    shown = runner.invoke(app, ["--help"]).stdout
    for section, settings in known_settings().items():
        for name, setting in settings.items():
            assert f"--{'pond-' if section == 'pond' else ''}{name.replace('_', '-')}" in shown
            assert setting.metadata["doc"].split(":")[0].replace("`", "").split()[0] in shown
    line = ["p", "--port", "0", "--insecure", "--no-metrics", "--allowed-hosts", "a", "--allowed-hosts", "b"]
    ended = runner.invoke(app, [*line, "--idle-seconds", "5s", "--pond-memory-bytes", "2GB"])
    assert ended.exit_code == 0, ended.output
    chosen = choose(seen[0])
    assert (chosen.serve.port, chosen.serve.insecure, chosen.serve.metrics) == (0, True, False)
    assert (chosen.serve.allowed_hosts, chosen.serve.idle_seconds) == (("a", "b"), 5.0)
    assert chosen.pond == {"memory_bytes": 2_000_000_000}
    assert set(chosen.sources) == {
        *("port", "insecure", "metrics", "allowed_hosts", "idle_seconds"),
        "pond.memory_bytes",
    }
