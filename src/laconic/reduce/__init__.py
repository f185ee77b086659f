"""All-reduce: sums of tensors over all ranks, exact, by the way that takes least.

::

    laconic.all_reduce(tensor)                       # in place, as torch.distributed.all_reduce
    laconic.all_reduce(tensor, method="owners")      # forced stays forced

The names below load on first use: ``laconic.reduce.network`` needs no torch and does not wait for it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from laconic.reduce.choice import Choice
    from laconic.reduce.reducer import Method, Reducer, Report, all_reduce
    from laconic.reduce.ways.coded import Levels
    from laconic.reduce.ways.large_first import LargeFirst, LayerMemory
    from laconic.reduce.ways.rounded import Network

_HOMES = {
    "Choice": "choice",
    "LargeFirst": "ways.large_first",
    "LayerMemory": "ways.large_first",
    "Levels": "ways.coded",
    "Method": "reducer",
    "Network": "ways.rounded",
    "Reducer": "reducer",
    "Report": "reducer",
    "all_reduce": "reducer",
}

__all__ = [
    "Choice",
    "LargeFirst",
    "LayerMemory",
    "Levels",
    "Method",
    "Network",
    "Reducer",
    "Report",
    "all_reduce",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'laconic.reduce' has no attribute {name!r}")
    return getattr(import_module(f"laconic.reduce.{_HOMES[name]}"), name)
