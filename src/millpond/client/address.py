"""Where a served pond is: its URL, read and checked, and the question by which `http` and `https` find the Flight door.

    http://127.0.0.1:7070, https://node.example:7070     ask `GET /v1` for the Flight port, then go there
    grpc://127.0.0.1:7071, grpc+tls://node.example:7071  go straight to it

A secret never stands in a URL, and a token that was to travel under TLS never travels without.
"""

from __future__ import annotations

import http.client
import ipaddress
import re
import ssl
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from millpond.errors import InvalidValue, MillpondError, Unavailable
from millpond.wire.answers import Node
from millpond.wire.failures import Failure, decode_failure

_PORTS = {"http": 80, "https": 443, "grpc": None, "grpc+tls": None}
_FORMS = "http://HOST:7070, https://HOST:7070, grpc://HOST:7071 or grpc+tls://HOST:7071"
# An answer to `GET /v1` has a few hundred bytes.
_ANSWER_BYTES_MAX = 1_000_000


def is_url(text: str) -> bool:
    """Whether a pond is meant that is served, not a directory."""
    return "://" in text


def shown_url(url: str) -> str:
    """A URL for messages, without the parts in which somebody may have put a secret."""
    if "@" in url:
        return f"{url.partition('://')[0]}://…" if is_url(url) else "…"
    plain = re.split("[?#]", url, maxsplit=1)[0]
    return plain if plain == url else f"{plain}…"


def check_token(token: str | None) -> str | None:
    """The token, if it can travel in a header; no message shows it."""
    if token is not None and (not isinstance(token, str) or not re.fullmatch("[!-~]*", token)):
        raise InvalidValue(
            "the token has a space, a line's end or another character that no token has",
            hint="give it exactly as millpond token create has shown it",
        )
    return token


@dataclass(frozen=True)
class Trust:
    """Files in PEM form: who signs servers (`ca`; otherwise whom the system trusts), and, for mutual TLS, our own
    certificate and key."""

    ca: Path | None = None
    certificate: Path | None = None
    key: Path | None = None

    def __post_init__(self) -> None:
        if (self.certificate is None) != (self.key is None):
            raise InvalidValue("a certificate without its key, or a key alone", hint="give both, or none")
        for path in (self.ca, self.certificate, self.key):
            if path is not None and not path.is_file():
                raise InvalidValue(f"{path} is not a file", hint="a file in PEM form")

    def context(self) -> ssl.SSLContext:
        """For HTTPS."""
        try:
            context = ssl.create_default_context(cafile=self.ca)
            if self.certificate is not None:
                context.load_cert_chain(self.certificate, self.key)
        except ssl.SSLError as error:
            raise InvalidValue(f"not certificates in PEM form: {error}", hint="look at the files") from None
        return context

    def for_flight(self) -> dict[str, bytes]:
        """As Flight's `connect` takes it."""
        found = {"tls_root_certs": self.ca, "cert_chain": self.certificate, "private_key": self.key}
        return {name: path.read_bytes() for name, path in found.items() if path is not None}


@dataclass(frozen=True)
class Address:
    """A URL in its parts."""

    scheme: str
    host: str
    port: int
    shown: str = field(compare=False)

    @classmethod
    def parse(cls, url: str) -> Address:
        """`InvalidValue` if it is none of ours."""
        try:
            parts = urlsplit(url)
            host, port = parts.hostname, parts.port
        except ValueError:
            raise InvalidValue(f"not a URL: {shown_url(url)!r}", hint=_FORMS) from None
        if parts.username is not None or parts.password is not None:
            raise InvalidValue("a URL with a user or a password in it", hint="give the token by token=, not in the URL")
        port = _PORTS.get(parts.scheme) if port is None else port
        extra = parts.path not in ("", "/") or parts.query or parts.fragment
        if parts.scheme not in _PORTS or not host or not port or extra or not _is_host(host):
            raise InvalidValue(f"not where a pond is served: {shown_url(url)!r}", hint=_FORMS)
        named = f"[{host}]" if ":" in host else host
        return cls(parts.scheme, host, port, f"{parts.scheme}://{named}:{port}")

    def flight(self, port: int, tls: bool) -> str:
        """The location of a Flight door on the same host."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"grpc{'+tls' if tls else ''}://{host}:{port}"

    @property
    def is_loopback(self) -> bool:
        try:
            return self.host == "localhost" or ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False


def _is_host(text: str) -> bool:
    """Whether it can be one: a name that DNS could hold, or an address."""
    try:
        if ":" in text:
            return bool(ipaddress.ip_address(text))
        return re.fullmatch("[A-Za-z0-9._-]+", text.encode("idna").decode()) is not None
    except ValueError:
        return False


def flight_location(address: Address, token: str | None, trust: Trust, timeout_seconds: float) -> str:
    """Where the Flight door is, asked over HTTP if need be."""
    if address.scheme.startswith("grpc"):
        return address.flight(address.port, address.scheme == "grpc+tls")
    return location_of(address, ask_node(address, token, trust, timeout_seconds))


def location_of(address: Address, node: Node) -> str:
    """The Flight door that a node tells of."""
    if node.flight_port is None:
        raise Unavailable(f"{address.shown} has no Flight door", hint="start it without --no-flight")
    if address.scheme == "https" and not node.flight_tls and not address.is_loopback:
        raise InvalidValue(
            f"{address.shown} has TLS, but its Flight door has none: the token would travel in the clear",
            hint="give the server's Flight door a certificate, too",
        )
    return address.flight(node.flight_port, node.flight_tls)


def ask_node(address: Address, token: str | None, trust: Trust, timeout_seconds: float) -> Node:
    """What the node says of itself."""
    status, body = _get(address, token, trust, timeout_seconds)
    if status != 200:
        raise _problem(address, status, body)
    try:
        return msgspec.json.decode(body, type=Node)
    except (msgspec.MsgspecError, UnicodeError):
        raise _not_ours(address) from None


def _get(address: Address, token: str | None, trust: Trust, timeout_seconds: float) -> tuple[int, bytes]:
    connection: http.client.HTTPConnection
    if address.scheme == "https":
        connection = http.client.HTTPSConnection(
            address.host, address.port, timeout=timeout_seconds, context=trust.context()
        )
    else:
        connection = http.client.HTTPConnection(address.host, address.port, timeout=timeout_seconds)
    headers = {"Accept": "application/json"} | ({"Authorization": f"Bearer {token}"} if token else {})
    try:
        connection.request("GET", "/v1", headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.read(_ANSWER_BYTES_MAX)
    except ssl.SSLCertVerificationError as error:
        raise Unavailable(
            f"the certificate of {address.shown} is not trusted: {error.verify_message}",
            hint="name the file of who signed it: ca=FILE, or --ca FILE",
        ) from None
    except ssl.SSLError as error:
        raise Unavailable(
            f"{address.shown} does not speak TLS with us: {error.reason or error}",
            hint="http:// is for servers without TLS; for mutual TLS give certificate and key",
        ) from None
    except http.client.HTTPException:
        raise _not_ours(address) from None
    except OSError as error:
        raise Unavailable(
            f"{address.shown} does not answer: {error.strerror or error}",
            hint="is the server running? millpond serve DIR starts one",
        ) from None
    finally:
        connection.close()


def _problem(address: Address, status: int, body: bytes) -> MillpondError:
    """The error in an RFC 9457 document."""
    try:
        told = msgspec.json.decode(body, type=dict[str, object])
    except (msgspec.MsgspecError, UnicodeError):
        told = {}
    if "code" not in told:
        return _not_ours(address) if status < 500 else Unavailable(f"{address.shown} failed: {status}", hint="its log")
    failure = Failure(str(told["code"]), str(told.get("detail", "")), str(told.get("fix", "")))
    return decode_failure(msgspec.json.encode(failure)) or _not_ours(address)


def _not_ours(address: Address) -> MillpondError:
    return Unavailable(
        f"{address.shown} answers, but not as Millpond does", hint="is it the address of a millpond serve?"
    )
