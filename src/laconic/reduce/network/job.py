"""Names and sizes of jobs: a random number of 64 bits that only workers know, and how many they are.

Whoever knows the name can take part, and nobody can guess it; packets are not encrypted.
"""

from __future__ import annotations

import secrets

from laconic.errors import ConfigError
from laconic.kernels.cpu import _native

__all__ = ["MOST_WORKERS", "check_job", "check_workers", "format_job", "parse_job", "random_job"]

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
