"""The settings of a server: one table, from which the command line, the environment, the TOML file, validation and the
docs page are derived (see `settings_sources`).

A name ends in its unit where it has one, as in `millpond.settings`. What a setting is for, and what it gives up, is
said beside it and nowhere else.
"""

from __future__ import annotations

import ipaddress
import math
from dataclasses import MISSING, Field, dataclass, field, fields
from typing import Any, Literal

from millpond.errors import InvalidValue
from millpond.model.names import NAME_LENGTH_MAX
from millpond.model.units import format_bytes
from millpond.settings import Settings

# What the system's timers take, with room to spare.
_WAIT_SECONDS_MAX = 86_400
_PORT_MAX = 65_535
# An Arrow buffer is addressed by 31 bits in most types, so one request can hold no more of use.
_BODY_BYTES_MAX = 2_000_000_000
# `model.schema.COLUMNS_MAX`, said again: every command line reads this table, and must not wait for pyarrow.
_COLUMNS_MAX = 1_000
# Decoders recurse; under this they are far from the end of a thread's stack.
_DEPTH_MAX = 500

LOOPBACK_NAMES = ("localhost", "localhost.localdomain", "ip6-localhost")


def _setting(default: Any, doc: str, *, low: float = 0, high: float = math.inf, choices: tuple[str, ...] = ()) -> Any:
    return field(default=default, metadata={"doc": doc, "low": low, "high": high, "choices": choices})


@dataclass(frozen=True)
class ServeSettings:
    """How a server listens, whom it lets in, and how much of anything it takes."""

    # Where it listens.
    host: str = _setting(
        "127.0.0.1",
        "The address to listen on. Any but loopback needs tokens and TLS, or `insecure`.",
    )
    port: int = _setting(7070, "The port of the REST door; 0 takes a free one.", high=_PORT_MAX)
    flight: bool = _setting(True, "Whether there is a Flight door.")
    flight_port: int = _setting(7071, "The port of the Flight door; 0 takes a free one.", high=_PORT_MAX)

    # Whom it lets in.
    tokens: str = _setting(
        "auto",
        "Whether callers show a token: `auto` as soon as one was made, `required` always, `off` never.",
        choices=("auto", "required", "off"),
    )
    insecure: bool = _setting(
        False,
        "Listen on any address without tokens or TLS: whoever reaches the port may do everything, and whoever is on "
        "the way reads and changes it.",
    )
    tls_certificate: str = _setting("", "PEM file with the certificate and its chain; both doors then speak TLS.")
    tls_key: str = _setting("", "PEM file with the certificate's private key, without a passphrase.")
    tls_client_roots: str = _setting(
        "", "PEM file with roots; callers must show a certificate that one of them signed (mutual TLS)."
    )
    allowed_hosts: tuple[str, ...] = _setting(
        (),
        "Names by which callers may address the server, besides loopback and `host`; `*` takes any, and with it a "
        "browser that was led here by a foreign name.",
    )
    allowed_origins: tuple[str, ...] = _setting(
        (), "Origins whose web pages may call, besides the server's own, e.g. `https://ops.example`."
    )

    # How much it takes.
    request_bytes_max: int = _setting(
        64_000_000,
        "The largest request body, as sent.",
        low=1_000,
        high=_BODY_BYTES_MAX,
    )
    decoded_bytes_max: int = _setting(
        256_000_000, "The largest request body, once decompressed.", low=1_000, high=_BODY_BYTES_MAX
    )
    batch_rows_max: int = _setting(1_000_000, "The most records in one request.", low=1, high=10_000_000)
    json_depth_max: int = _setting(64, "How deep JSON may nest.", low=4, high=_DEPTH_MAX)
    columns_max: int = _setting(_COLUMNS_MAX, "The most columns, inner ones among them.", low=1, high=_COLUMNS_MAX)
    name_length_max: int = _setting(NAME_LENGTH_MAX, "The longest name of a stream.", low=1, high=NAME_LENGTH_MAX)
    page_rows_max: int = _setting(10_000, "The most records in one page of an answer.", low=1, high=1_000_000)
    connections_max: int = _setting(1_000, "Connections at once; further ones are refused.", low=1, high=100_000)
    calls_max: int = _setting(64, "Calls at once that read, settle or wait; further ones get 429.", low=1, high=1_000)
    followers_max: int = _setting(
        200,
        "Streams followed at once by REST; puts, gets and followers at once by Flight. Further ones get 429.",
        low=1,
        high=10_000,
    )
    requests_per_second: float = _setting(
        0.0, "Requests that each token may make a second, over time; 0 sets no bound.", high=10_000_000
    )
    requests_burst: int = _setting(
        0, "Requests that each token may make at once; 0 is as many as `requests_per_second`.", high=10_000_000
    )
    idle_seconds: float = _setting(
        75.0, "How long a connection may be quiet between requests.", low=1, high=_WAIT_SECONDS_MAX
    )
    request_seconds: float = _setting(
        60.0, "How long the head and the body of a request may take to arrive.", low=0.1, high=_WAIT_SECONDS_MAX
    )
    drain_seconds: float = _setting(
        20.0, "How long a stopping server waits for the requests under way.", high=_WAIT_SECONDS_MAX
    )

    # What it says.
    access_log: bool = _setting(True, "Whether each request leaves a line in the log.")
    log_format: str = _setting("json", "How a line of the log is written.", choices=("json", "text"))
    log_level: str = _setting(
        "info", "From which weight on something is logged.", choices=("debug", "info", "warning", "error")
    )
    metrics: bool = _setting(True, "Whether `/metrics` answers.")

    def __post_init__(self) -> None:
        for each in fields(self):
            check_value(each, getattr(self, each.name))
        if bool(self.tls_certificate) != bool(self.tls_key):
            raise InvalidValue(
                "tls_certificate and tls_key belong together, and one is missing", hint="name both files, or none"
            )
        if self.tls_client_roots and not self.tls:
            raise InvalidValue(
                "tls_client_roots without a certificate of the server", hint="name tls_certificate and tls_key too"
            )

    @property
    def tls(self) -> bool:
        """Whether both doors speak TLS."""
        return bool(self.tls_certificate)


Kind = Literal["text", "choice", "list", "flag", "bytes", "seconds", "count", "number"]


def kind_of(setting: Field[Any]) -> Kind:
    """What a setting's value is, told from its default and its name."""
    if setting.metadata.get("choices"):
        return "choice"
    if isinstance(setting.default, bool):
        return "flag"
    if isinstance(setting.default, tuple):
        return "list"
    if isinstance(setting.default, str):
        return "text"
    if "_bytes" in setting.name:
        return "bytes"
    if "_seconds" in setting.name:
        return "seconds"
    return "count" if isinstance(setting.default, int) else "number"


def check_value(setting: Field[Any], value: Any) -> None:
    """`InvalidValue` unless `value` is one that the setting may have."""
    assert setting.default is not MISSING
    kind = kind_of(setting)
    if kind in ("flag", "text", "choice", "list"):
        known = isinstance(value, type(setting.default))
        if kind == "choice":
            known = known and value in setting.metadata["choices"]
        if kind == "list":
            known = known and all(isinstance(each, str) and each for each in value)
    else:
        whole = kind in ("bytes", "count")
        known = isinstance(value, int if whole else int | float) and not isinstance(value, bool)
        known = known and math.isfinite(value) and setting.metadata["low"] <= value <= setting.metadata["high"]
    if not known:
        raise InvalidValue(f"setting {setting.name} = {value!r}", hint=f"{setting.metadata['doc']} {bounds(setting)}")


def bounds(setting: Field[Any]) -> str:
    """What a setting's value may be, as a sentence."""
    kind, low, high = kind_of(setting), setting.metadata.get("low"), setting.metadata.get("high")
    if kind == "choice":
        return f"One of {', '.join(setting.metadata['choices'])}."
    if kind == "flag":
        return "true or false."
    if kind == "text":
        return "Text."
    if kind == "list":
        return "Some texts."
    most = "" if high == math.inf else f", at most {high:,}"
    return f"At least {low:,}{most}."


def shown_default(setting: Field[Any]) -> str:
    """A setting's default, for people."""
    kind = kind_of(setting)
    default: Any = setting.default
    if kind == "bytes":
        return format_bytes(default).replace(".0 ", " ")
    if kind == "seconds":
        return f"{default:g} s"
    if kind == "number":
        return f"{default:g}"
    if kind == "count" and not setting.name.endswith("port"):
        return f"{default:,}"
    if kind == "list":
        return ", ".join(default) or "none"
    return str(default).lower() or "none"


def known_settings() -> dict[str, dict[str, Field[Any]]]:
    """The two tables that a server is set by: its own and the pond's."""
    return {
        "serve": {each.name: each for each in fields(ServeSettings)},
        "pond": {each.name: each for each in fields(Settings)},
    }


def is_loopback(host: str) -> bool:
    """Whether only programs of this machine reach an address. A name that is not known to be loopback is not."""
    if host.lower().rstrip(".") in LOOPBACK_NAMES:
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def check_exposure(settings: ServeSettings, tokens_exist: bool) -> None:
    """`InvalidValue` where others could reach the server without a token or without TLS, and nobody insisted on it."""
    if is_loopback(settings.host) or settings.insecure:
        return
    needs_token = settings.tokens == "required" or (settings.tokens == "auto" and tokens_exist)
    missing = []
    if not needs_token:
        remedy = "--tokens auto" if settings.tokens == "off" else "millpond token create NAME --right read"
        missing.append(f"token ({remedy})")
    if not settings.tls:
        missing.append("TLS (--tls-certificate FILE --tls-key FILE)")
    if missing:
        raise InvalidValue(
            f"host {settings.host!r} is open to other machines, and there is no {' and no '.join(missing)}",
            hint="set what is missing, or listen on 127.0.0.1; --insecure goes without, and lets whoever reaches the "
            "port do everything and whoever is on the way read it",
        )
