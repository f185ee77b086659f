"""Packages that some commands need and Laconic alone does not install, and the line that does."""

from __future__ import annotations

from importlib.util import find_spec

__all__ = ["EXTRAS", "need", "remedy"]

EXTRAS = {
    "data": ("pyarrow",),
    "lab": ("pyroute2",),
    "report": ("plotly",),
    "plan": ("scipy",),
    "tune": ("scipy",),
    "quantize": ("safetensors", "scipy"),
    "xdp": ("ziglang",),
    "serve": ("fastapi", "prometheus_client", "safetensors", "uvicorn"),
    "bench": ("blosc2", "lz4", "onnx", "onnxruntime", "pysz", "torchao", "zfpy", "zstandard"),
}
"""What ``pip install 'laconic[EXTRA]'`` brings, by the names one imports; a test compares it with pyproject.toml."""


def need(package: str) -> None:
    """Say at the beginning of a command what would be missing at its end."""
    if find_spec(package) is None:
        raise ModuleNotFoundError(f"No module named {package!r}", name=package)


def remedy(error: ModuleNotFoundError, command: str) -> str | None:
    """Name the package and the line that installs it; None where no extra brings it."""
    package = (error.name or "").partition(".")[0]
    extras = [extra for extra, packages in EXTRAS.items() if package in packages]
    if not extras:
        return None
    extra = command if command in extras else extras[0]
    return f"{command}: needs {package}; pip install 'laconic[{extra}]'"
