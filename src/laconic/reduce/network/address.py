"""Where an aggregator listens: ``10.0.0.254`` or ``10.0.0.254:9917``, IPv4."""

from __future__ import annotations

import ipaddress
import socket
from dataclasses import dataclass

from laconic.errors import ConfigError
from laconic.kernels.cpu import _native

__all__ = ["DEFAULT_PORT", "Address"]

DEFAULT_PORT: int = _native.PACKET_PORT


@dataclass(frozen=True, slots=True)
class Address:
    """IPv4 address and UDP port."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> Address:
        """Read ``host`` or ``host:port``; a name is looked up."""
        host, colon, port = text.partition(":")
        if colon and not (port.isascii() and port.isdigit() and 0 < int(port) < 1 << 16):
            raise ConfigError(f"aggregator: address: expected a port from 1 to 65535, got {text!r}")
        try:
            found = str(ipaddress.IPv4Address(host))
        except ValueError:
            try:
                found = socket.gethostbyname(host) if host else ""
            except OSError:
                found = ""
        if not found:
            raise ConfigError(
                f"aggregator: address: expected an IPv4 address or a known name, got {text!r};"
                f" write for example '10.0.0.254:{DEFAULT_PORT}'"
            )
        return cls(found, int(port) if colon else DEFAULT_PORT)

    @property
    def pair(self) -> tuple[str, int]:
        """As sockets take it."""
        return self.host, self.port

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"
