"""The dense part of an artefact, ready to run.

Shape legend: ``B`` samples, ``F`` dense features, ``V`` vectors that interact, ``T`` tables, ``D`` numbers of an
embedding.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from laconic.quant.layers import restored_weight
from laconic.quant.model_shape import ModelShape

__all__ = ["DenseNetwork"]


class DenseNetwork:
    """Layers in their precision; never changed once made."""

    own_vectors = 0
    """Vectors of a sample that precede those of the tables, and that the network fills."""

    def __init__(self, shape: ModelShape, layers: Mapping[str, dict[str, Tensor]]) -> None:
        self.layers = dict(layers)
        self._model = shape.build()
        state = {}
        for name, parts in self.layers.items():
            state[f"{name}.weight"] = restored_weight(parts)
            if "bias" in parts:
                state[f"{name}.bias"] = parts["bias"]
        self._model.load_state_dict(state)
        self._model.requires_grad_(False)

    def logits(self, dense_BF: NDArray[np.float32], vectors_BVD: NDArray[np.float32]) -> NDArray[np.float32]:
        """Logits, one for each sample."""
        with torch.inference_mode():
            logits_B: NDArray[np.float32] = self._model(
                torch.from_numpy(dense_BF), torch.from_numpy(vectors_BVD)
            ).numpy()
        return logits_B
