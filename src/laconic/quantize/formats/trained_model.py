"""A trained model, whole and in float32: what quantization begins with."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from laconic.data.value_index import Values
from laconic.errors import ConfigError, FormatError
from laconic.lookups import Lookups
from laconic.models import DLRM, DCNv2
from laconic.quantize.formats.features import Features
from laconic.quantize.formats.model_shape import ModelShape
from laconic.quantize.formats.raw_ids import check_vocabulary

__all__ = ["TrainedModel"]


@dataclass(frozen=True, slots=True, eq=False)
class TrainedModel:
    """Tables and dense part of one snapshot. Shape legend: ``B`` samples, ``F`` dense features."""

    shape: ModelShape

    features: Features

    tables: dict[str, Tensor]
    """float32, rows x dim, by name."""

    state: dict[str, Tensor]
    """Parameters of the dense part, as ``state_dict`` gives them."""

    vocabularies: dict[str, Values] = field(default_factory=dict)
    """Raw values of every table whose ``raw`` is "vocabulary", in the order of their ids, by name."""

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

    def dense_part(self) -> DLRM | DCNv2:
        """Make the module with its trained weights, for inference."""
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
        bags = []
        for t, name in enumerate(self.features.table_names):
            offsets = lookups.offsets[t * lookups.samples : (t + 1) * lookups.samples + 1]
            ids = lookups.ids_L[int(offsets[0]) : int(offsets[-1])]
            bags.append(
                nn.functional.embedding_bag(
                    ids,
                    self.tables[name],
                    offsets - offsets[0],
                    mode=self.shape.pooling,
                    include_last_offset=True,
                )
            )
        return torch.stack(bags, dim=1)

    def logits(self, model: nn.Module, dense_BF: Tensor, lookups: Lookups) -> Tensor:
        """Score in float32 with the module that ``dense_part`` made."""
        with torch.inference_mode():
            return model(dense_BF, self.embed(lookups))  # type: ignore[no-any-return]
