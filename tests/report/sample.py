"""A result as a benchmark would write it: six methods, 26 tables. The figures are invented."""

from __future__ import annotations

import math
import random
from typing import Any

_ROWS = [1460, 583, 10131227, 2202608, 305, 24, 12517, 633, 3, 93145, 5683, 8351593, 3194]
_ROWS += [27, 14992, 5461306, 10, 5652, 2173, 4, 7046547, 18, 15, 286181, 105, 142572]
_MB = 1_000_000
_METHODS = (
    # name, step ms, share of communication, forward, backward, ids, dense, AUC
    ("plain", 412.0, 0.84, 13.63, 13.63, 0.43, 2.11, 0.79214),
    ("fp16", 247.0, 0.73, 6.82, 6.82, 0.43, 1.05, 0.79213),
    ("int8", 171.0, 0.61, 3.62, 3.62, 0.43, 2.11, 0.79166),
    ("rows_fp32", 301.0, 0.78, 8.11, 8.11, 0.43, 2.11, 0.79214),
    ("sc24", 158.0, 0.55, 1.31, 6.82, 0.43, 2.11, 0.79197),
    ("laconic", 96.4, 0.29, 0.64, 1.12, 0.112, 0.42, 0.79209),
)


def sample() -> dict[str, Any]:
    """Make a fresh dictionary, ready for ``json.dumps``."""
    draw = random.Random(7)
    return {
        "title": "DLRM on four hosts joined by 1 Gbit/s",
        "machine": {"cpu": "AMD EPYC 7763 64-Core", "cores": "2", "torch": "2.13.0+cpu", "laconic": "0.1.0"},
        "setting": {
            "hosts": 4,
            "rate_mbit": 1000,
            "data": "synthetic, Criteo-shaped",
            "model": "DLRM 512-256-64 / 512-256",
            "samples_per_rank": 2048,
            "dim": 64,
        },
        "methods": [_method(draw, figures) for figures in _METHODS],
        "tables": [_table(draw, i, rows) for i, rows in enumerate(_ROWS)],
    }


def _method(draw, figures) -> dict[str, Any]:
    name, step_ms, share, forward, backward, ids, dense, auc = figures
    points = []
    for i in range(1, 21):
        missing = 0.05 * math.exp(-i / 5) + draw.uniform(0, 3e-4)
        point = {"step": 100 * i, "seconds": 0.1 * i * step_ms, "samples": 819_200 * i}
        loss = 0.4585 + missing + draw.uniform(-2e-3, 2e-3)
        points.append({**point, "loss": loss, "auc": auc - missing if i % 2 == 0 else None})
    rows_before = 8.11 if name in ("rows_fp32", "laconic") else 13.63
    return {
        "name": name,
        "step_ms": [step_ms * draw.lognormvariate(0, 0.03) for _ in range(100)],
        "communication_share": share,
        "bytes_forward": forward * _MB,
        "bytes_forward_before": rows_before * _MB,
        "bytes_backward": backward * _MB,
        "bytes_backward_before": rows_before * _MB,
        "bytes_ids": ids * _MB,
        "bytes_ids_before": 0.43 * _MB,
        "bytes_dense": dense * _MB,
        "bytes_dense_before": 2.11 * _MB,
        "auc": auc,
        "log_loss": 1.2506 - auc,
        "curve": points,
    }


def _table(draw, index, rows) -> dict[str, Any]:
    before = 4 * 64 * min(2048, rows)
    exact = rows < 20
    bound = None if exact else draw.choice([0.005, 0.01, 0.02, 0.05])
    return {
        "name": f"C{index + 1}",
        "rows": rows,
        "forward": "exact" if exact else f"BoundedRows({bound})",
        "backward": "exact" if exact else "BoundedRows(0.1, unit='rms')",
        "bound": bound,
        "bytes_forward_before": before,
        "bytes_forward_after": before if exact else before / draw.uniform(5, 60),
        "bytes_backward_before": before,
        "bytes_backward_after": before if exact else before / draw.uniform(4, 12),
    }
