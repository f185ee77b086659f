"""Metrics for Prometheus; each server has its own registry, so that a process can have several."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

__all__ = ["Metrics"]

_SECONDS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5)
_SAMPLES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096)


class Metrics:
    """Counters, gauges and histograms; their names begin with ``laconic_``."""

    content_type = "text/plain; version=0.0.4; charset=utf-8"

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry(auto_describe=True)
        self.requests = Counter(
            "laconic_requests", "Answers to infer, by status", ["status"], registry=registry
        )
        self.request_seconds = Histogram(
            "laconic_request_seconds",
            "From a request's head to its answer, of those with 200",
            buckets=_SECONDS,
            registry=registry,
        )
        self.batch_seconds = Histogram(
            "laconic_batch_seconds", "Time to score a batch", buckets=_SECONDS, registry=registry
        )
        self.batch_samples = Histogram(
            "laconic_batch_samples", "Samples of a batch", buckets=_SAMPLES, registry=registry
        )
        self.waiting = Gauge(
            "laconic_waiting_samples", "Samples that are not answered yet", registry=registry
        )
        self.bodies = Gauge("laconic_bodies_bytes", "Bytes of all bodies at hand", registry=registry)
        self.connections_refused = Counter(
            "laconic_connections_refused", "Connections beyond the limit", registry=registry
        )
        self.unknown_ids = Counter(
            "laconic_unknown_ids", "Ids mapped to the row for unknown ones", ["table"], registry=registry
        )
        self.raw_values = Counter(
            "laconic_raw_values",
            "Raw dense values taken for 0: missing ones, and negative ones before a logarithm",
            ["feature", "what"],
            registry=registry,
        )
        self.reloads = Counter(
            "laconic_reloads", "Attempts to load an artifact, by result", ["result"], registry=registry
        )
        self.version = Gauge(
            "laconic_model_info", "1 for the version that answers", ["model", "version"], registry=registry
        )
        self.watched = Counter(
            "laconic_watch_samples", "Samples that the shadow scored too", registry=registry
        )
        self.watch_dropped = Counter(
            "laconic_watch_dropped", "Requests that the watch had no time for", registry=registry
        )
        self.watch_not_finite = Counter(
            "laconic_watch_not_finite",
            "Samples whose shadow's score is not finite; no figure has them",
            registry=registry,
        )
        self.drift = Gauge(
            "laconic_watch_drift", "Latest figure of a window", ["figure", "part"], registry=registry
        )
        self.alerts = Counter(
            "laconic_watch_alerts", "Thresholds exceeded", ["figure", "part"], registry=registry
        )
        self.switches = Counter(
            "laconic_watch_switches", "Parts switched to fp32", ["part"], registry=registry
        )

    def scored(self, samples: int, seconds: float) -> None:
        """Count a batch that was scored."""
        self.batch_seconds.observe(seconds)
        self.batch_samples.observe(samples)

    def text(self) -> bytes:
        """Return all metrics in the text format of Prometheus."""
        return generate_latest(self.registry)
