"""Settings of a server. ::

laconic serve ARTIFACT --config serve.toml --set batching.latency_ms=5
"""

from __future__ import annotations

from pydantic import Field

from laconic.config import Settings

__all__ = ["Batching", "RequestLimits", "ServerSettings", "Watching"]


class RequestLimits(Settings):
    """Limits of size and time that a client cannot exceed."""

    body_mb: float = Field(default=8.0, gt=0)
    """Largest body of a request, before and after decompression, in 2^20 bytes. More is 413."""

    samples: int = Field(default=4096, ge=1)
    """Most samples of one request. More is 413."""

    ids: int = Field(default=1_000_000, ge=1)
    """Most ids of one request, over all tables. More is 413."""

    bodies_mb: float = Field(default=256.0, gt=0)
    """Most bytes of all bodies that are being read, waiting or being scored. More is 429."""

    connections: int = Field(default=512, ge=1)
    """Most connections at a time. One more gets 429 and is closed."""

    head_s: float = Field(default=10.0, gt=0)
    """Seconds to the end of a head, from its first byte or from the connection's beginning."""

    body_s: float = Field(default=30.0, gt=0)
    """Seconds from a request's head to the end of its body. Later is 408."""

    idle_s: int = Field(default=30, ge=1)
    """Seconds after which a connection without a request is closed."""

    drain_s: float = Field(default=30.0, gt=0)
    """Seconds after SIGTERM at which unfinished answers are given up."""


class Batching(Settings):
    """How requests are scored together."""

    max_samples: int = Field(default=1024, ge=1)
    """Most samples of a batch of several requests; a single request may be larger."""

    latency_ms: float = Field(default=10.0, gt=0)
    """Target of the latency: a batch waits for others while its oldest request can meet it."""

    deadline_ms: float = Field(default=200.0, gt=0)
    """Longest time to an answer: a request that would take longer, or has waited so, gets 429."""

    waiting_samples: int = Field(default=65536, ge=1)
    """Most samples that wait, whatever the deadline says. More is 429."""


class Watching(Settings):
    """How live traffic is compared with the exact model, and what is done about it."""

    enabled: bool = True
    """Whether to watch at all."""

    share: float = Field(default=0.1, ge=0, le=1)
    """Share of requests that the fp32 shadow scores too, in a thread of low priority."""

    waiting: int = Field(default=16384, ge=1)
    """Most samples that wait for the watch; requests beyond that are only counted."""

    window: int = Field(default=512, ge=32)
    """Samples of a window: for scores, of those that the shadow scored; for inputs, of all."""

    least: int = Field(default=100, ge=16)
    """Fewest samples of a window whose scores are compared with limits."""

    reference: int = Field(default=1000, ge=100)
    """Samples from which input distributions are learnt, where the artifact stores none."""

    harm: float = Field(default=0.002, gt=0)
    """Largest expected increase of normalized entropy, unless the artifact has a budget."""

    difference: float = Field(default=0.02, gt=0)
    """Largest mean absolute difference between a probability and the shadow's."""

    calibration: float = Field(default=0.05, gt=0)
    """Largest ``|mean probability / mean of the shadow's - 1|``."""

    psi: float = Field(default=0.25, gt=0)
    """Largest population stability index of a feature, on top of what chance explains."""

    unknown: float = Field(default=0.05, gt=0)
    """Largest increase of the share of unknown ids of a table."""

    entropy: float = Field(default=0.02, gt=0)
    """Largest relative increase of normalized entropy, once labels arrive."""

    labels: int = Field(default=1000, ge=100)
    """Number of labeled samples in a window."""

    remembered: int = Field(default=100_000, ge=1)
    """Most samples whose scores wait for their labels; the oldest are forgotten."""

    switching: bool = True
    """Whether a table or layer that is to blame is switched to fp32, or only reported."""


class ServerSettings(Settings):
    """All settings of a server."""

    host: str = "127.0.0.1"
    """Address to listen on. Beyond loopback, set a token and put a proxy with TLS in front."""

    port: int = Field(default=8000, ge=0, le=65535)
    """Port to listen on; 0 takes a free one, which is printed."""

    model: str = Field(default="model", pattern=r"^[A-Za-z0-9_.-]{1,64}$")
    """Name of the model in requests."""

    threads: int = Field(default=1, ge=1)
    """Threads that score a batch."""

    limits: RequestLimits = RequestLimits()
    batching: Batching = Batching()
    watch: Watching = Watching()
