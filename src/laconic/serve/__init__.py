"""Serving: an engine that scores with an artifact, and an HTTP server for it.

Begin with ``engine`` (what scores), then follow a request: ``connection`` (time limits, overload),
``app`` (routes), ``tensors`` and ``query`` (what a request asks), ``batcher``, ``deployment``.
``watch`` compares live traffic with the exact model; ``onnx_export`` is for other servers.
"""

from laconic.serve.engine import Engine

__all__ = ["Engine"]
