"""Compact tables: the rows that some batches look up, and the batches with ids that count these.

An engine copies its tables, and what it answers needs no more of them than these rows. Shape
legend: ``U`` distinct ids.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

from laconic.data import Samples
from laconic.lookups import Lookups
from laconic.quantize.formats import Artifact
from laconic.quantize.formats.table_rows import LookedUp

__all__ = ["Compact"]


class Compact:
    """Batches, with tables that have the rows they look up and nothing else."""

    def __init__(self, batches: Sequence[Samples]) -> None:
        lookups, tables = [samples.lookups for samples in batches], batches[0].lookups.tables
        found = [LookedUp([each.table(t) for each in lookups]) for t in range(tables)]
        self._ids = [one.ids_U if len(one.ids_U) else torch.zeros(1, dtype=torch.int64) for one in found]
        self.lookups = [
            Lookups(torch.cat([one.places[k] for one in found]), each.offsets, tables)
            for k, each in enumerate(lookups)
        ]
        """Lookups of each batch in compact tables."""

    def artifact(self, artifact: Artifact) -> Artifact:
        """Return an artifact with compact tables, which no feature describes."""
        names = artifact.features.table_names
        return replace(
            artifact,
            tables={name: artifact.tables[name][ids_U] for name, ids_U in zip(names, self._ids, strict=True)},
        )
