"""Where an aggregator listens, and names and sizes of jobs.

A job's name is a random number of 64 bits that only its workers know. Whoever knows it can take
part, and nobody can guess it; packets are not encrypted.
"""

from __future__ import annotations

import ipaddress
import secrets
import socket
from dataclasses import dataclass

from laconic.errors import ConfigError
from laconic.kernels.cpu import _native

__all__ = [
    "DEFAULT_PORT",
    "MOST_WORKERS",
    "Address",
    "check_job",
    "check_workers",
    "format_job",
    "parse_job",
    "random_job",
]


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


MOST_WORKERS: int = _native.PACKET_WORKERS


def random_job() -> int:
    """Choose a name that nobody else has."""
    return secrets.randbits(64)


def format_job(job: int) -> str:
    """Write a name as 16 hexadecimal digits."""
    return f"{job:016x}"


def parse_job(text: str) -> int:
    """Read what ``format_job`` wrote."""
    try:
        job = int(text, 16)
    except ValueError:
        job = -1
    if len(text) != 16 or not 0 <= job < 1 << 64:
        raise ConfigError(
            f"aggregator: job: expected 16 hexadecimal digits, got {text!r}; leave it out to have one made"
        )
    return job


def check_job(job: int) -> int:
    """Return a name, or raise if it has not 64 bits."""
    if isinstance(job, bool) or not isinstance(job, int) or not 0 <= job < 1 << 64:
        raise ConfigError(f"aggregator: job: expected a number of 64 bits, got {job!r}")
    return job


def check_workers(workers: int) -> int:
    """Return a number of workers, or raise if a packet cannot name as many."""
    if isinstance(workers, bool) or not isinstance(workers, int) or not 1 <= workers <= MOST_WORKERS:
        raise ConfigError(f"aggregator: workers: expected 1 to {MOST_WORKERS}, got {workers!r}")
    return workers
