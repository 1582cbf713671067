"""What a door needs to be spoken to in private, and to know who speaks."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Tls:
    """A server's certificate (with its chain) and key, as PEM. With `client_roots`, callers must show a certificate
    that one of these has signed: mutual TLS."""

    certificate: bytes
    key: bytes = field(repr=False)
    client_roots: bytes | None = None
