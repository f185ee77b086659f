"""Sums of tensors over all ranks, exact unless asked otherwise, by the way that takes least.

::

    laconic.all_reduce(tensor)                       # in place, as torch.distributed.all_reduce
    laconic.all_reduce(tensor, method="owners")      # forced stays forced
    laconic.all_reduce(tensor, group=group, async_op=True).wait()

The names below load on first use: ``laconic.reduce.network`` needs no torch, and does not wait for
it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from laconic.cost.reduce_time import Choice
    from laconic.reduce.group_sums import all_reduce
    from laconic.reduce.reducer import Method, Reducer, Report
    from laconic.reduce.ways.coded import Levels
    from laconic.reduce.ways.dense import Exact
    from laconic.reduce.ways.large_first import LargeFirst, LayerMemory
    from laconic.reduce.ways.rounded import Adder, Rounded

_HOMES = {
    "Adder": "laconic.reduce.ways.rounded",
    "Choice": "laconic.cost.reduce_time",
    "Exact": "laconic.reduce.ways.dense",
    "LargeFirst": "laconic.reduce.ways.large_first",
    "LayerMemory": "laconic.reduce.ways.large_first",
    "Levels": "laconic.reduce.ways.coded",
    "Method": "laconic.reduce.reducer",
    "Reducer": "laconic.reduce.reducer",
    "Report": "laconic.reduce.reducer",
    "Rounded": "laconic.reduce.ways.rounded",
    "all_reduce": "laconic.reduce.group_sums",
}

__all__ = [
    "Adder",
    "Choice",
    "Exact",
    "LargeFirst",
    "LayerMemory",
    "Levels",
    "Method",
    "Reducer",
    "Report",
    "Rounded",
    "all_reduce",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'laconic.reduce' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
