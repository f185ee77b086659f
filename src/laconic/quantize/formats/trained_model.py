"""A trained model in float32, with which quantization begins, and the shape of its dense layers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from laconic.config import Settings
from laconic.data.raw_source import Values
from laconic.errors import ConfigError, FormatError
from laconic.lookups import Lookups
from laconic.models import DLRM, DCNv2
from laconic.quantize.formats.features import Features, check_vocabulary
from laconic.quantize.formats.table_rows import GROUP_VALUES, LookedUp, TableRows, groups

__all__ = ["ModelShape", "TrainedModel", "linear_layers"]

Size = Annotated[int, Field(ge=1)]


class ModelShape(Settings):
    """Kind and sizes of a model, as in the settings of training."""

    kind: Literal["dlrm", "dcn_v2"] = "dlrm"
    """``dlrm``: dot products of pairs; ``dcn_v2``: cross network."""

    dense: int = Field(ge=0)
    """Number of dense features."""

    tables: int = Field(ge=1)
    """Number of embedding tables."""

    dim: int = Field(ge=1)
    """Numbers of an embedding."""

    bottom: tuple[Size, ...] = (512, 256)
    """Sizes of the layers over the dense features; DLRM adds one of size ``dim``."""

    top: tuple[Size, ...] = (512, 256)
    """Sizes of the layers over the interactions; one of size 1 is added."""

    cross: int = Field(default=3, ge=1)
    """Number of cross layers of DCN-v2."""

    pooling: Literal["sum", "mean"] = "sum"
    """How the rows of a bag are pooled."""

    def build(self) -> DLRM | DCNv2:
        """Make the module, with random weights."""
        if self.kind == "dlrm":
            return DLRM(
                dense=self.dense, tables=self.tables, dim=self.dim, bottom=self.bottom, top=self.top
            ).eval()
        return DCNv2(
            dense=self.dense,
            tables=self.tables,
            dim=self.dim,
            bottom=self.bottom,
            cross=self.cross,
            deep=self.top,
        ).eval()

    def layer_names(self) -> tuple[str, ...]:
        """Return the names of all fully connected layers, in the order of the module."""
        return tuple(linear_layers(self.build()))


def linear_layers(model: nn.Module) -> dict[str, nn.Linear]:
    """Return the fully connected layers of a module, by name."""
    return {name: module for name, module in model.named_modules() if isinstance(module, nn.Linear)}


@dataclass(frozen=True, slots=True, eq=False)
class TrainedModel:
    """Tables and dense weights of a snapshot. Shape legend: ``B`` samples, ``F`` dense features."""

    shape: ModelShape

    features: Features

    tables: Mapping[str, TableRows]
    """float32, rows x dim, by name: tensors, or rows that are read where they are needed."""

    state: dict[str, Tensor]
    """Parameters of the dense model, as ``state_dict`` gives them."""

    vocabularies: dict[str, Values] = field(default_factory=dict)
    """Raw values of tables whose ``raw`` is "vocabulary", in the order of their ids, by name."""

    def __post_init__(self) -> None:
        names = self.features.table_names
        if len(names) != self.shape.tables or len(self.features.dense) != self.shape.dense:
            raise ConfigError(
                f"model: expected {self.shape.tables} tables and {self.shape.dense} dense features, "
                f"got features with {len(names)} and {len(self.features.dense)}"
            )
        for feature in self.features.tables:
            table = self.tables.get(feature.name)
            expected = (feature.rows, self.shape.dim)
            if table is None or tuple(table.shape) != expected or table.dtype != torch.float32:
                got = "none" if table is None else f"{table.dtype} of shape {tuple(table.shape)}"
                raise ConfigError(
                    f"model: expected table {feature.name!r} as float32 of shape {expected}, got {got}"
                )
            check_vocabulary(feature, self.vocabularies.get(feature.name))

    def dense_model(self) -> DLRM | DCNv2:
        """Make the dense model with its trained weights, for inference."""
        model = self.shape.build()
        try:
            model.load_state_dict(self.state)
        except RuntimeError as error:
            raise FormatError(
                f"model: its weights are of another model: {str(error).splitlines()[-1].strip()}"
            ) from error
        return model.requires_grad_(False)

    def embed(self, lookups: Lookups) -> Tensor:
        """Look up and pool in float32: B x T x D."""
        (embeddings_BTD,) = self.embed_batches([lookups])
        return embeddings_BTD

    def embed_batches(self, batches: Iterable[Lookups]) -> Iterator[Tensor]:
        """Look up and pool batch by batch.

        Rows are read for many batches at a time, and only those that the batches look up.
        """
        for group in groups(batches, lambda each: len(each.ids_L), GROUP_VALUES // self.shape.dim):
            yield from self._embed_group(group)  # its rows are gone before the next group's are read

    def logits(self, model: nn.Module, dense_BF: Tensor, lookups: Lookups) -> Tensor:
        """Score in float32 with the module that ``dense_model`` made."""
        (logits_B,) = self.logits_of_batches(model, [(dense_BF, lookups)])
        return logits_B

    def logits_of_batches(
        self, model: nn.Module, batches: Iterable[tuple[Tensor, Lookups]]
    ) -> Iterator[Tensor]:
        """Score batch by batch in float32 with the module that ``dense_model`` made."""
        inputs = list(batches)
        embedded = self.embed_batches(lookups for _, lookups in inputs)
        for (dense_BF, _), embeddings_BTD in zip(inputs, embedded, strict=True):
            with torch.inference_mode():
                logits_B = model(dense_BF, embeddings_BTD)
            yield logits_B

    def _embed_group(self, group: Sequence[Lookups]) -> Iterator[Tensor]:
        found = [LookedUp([lookups.table(t) for lookups in group]) for t in range(self.shape.tables)]
        names = self.features.table_names
        rows = [self.tables[name][each.ids_U] for name, each in zip(names, found, strict=True)]
        for batch in range(len(group)):
            bags = [self._pool(*table, batch) for table in zip(rows, found, strict=True)]
            yield torch.stack(bags, dim=1)

    def _pool(self, rows_UD: Tensor, found: LookedUp, batch: int) -> Tensor:
        places_L, offsets = found.places[batch], found.offsets[batch]
        if not len(rows_UD):
            return torch.zeros(len(offsets) - 1, self.shape.dim)
        return nn.functional.embedding_bag(
            places_L, rows_UD, offsets, mode=self.shape.pooling, include_last_offset=True
        )
