"""All-reduce: sums of tensors over all ranks, exact, by the way that takes least.

::

    laconic.all_reduce(tensor)                       # in place, as torch.distributed.all_reduce
    laconic.all_reduce(tensor, method="owners")      # forced stays forced
"""

from laconic.collectives.reduction.all_reduce import all_reduce
from laconic.collectives.reduction.choice import Choice
from laconic.collectives.reduction.coded import Levels
from laconic.collectives.reduction.large_first import LargeFirst, LayerMemory
from laconic.collectives.reduction.reducer import Method, Reducer, Report
from laconic.collectives.reduction.rounded import Network

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
