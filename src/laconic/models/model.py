"""The interface of a model: a part that needs no embeddings, and a head that does.

::

    part = model.dense_part(dense_BF)               # while embedding rows travel
    logits_B = model.head(part, embeddings_BTD)     # once they are here

Shape legend: ``B`` samples (possibly none), ``F`` dense features (possibly none), ``T`` tables,
``D`` numbers in an embedding.

Layers are initialized as in the reference DLRM. Weights are normal with variance
``2 / (inputs + outputs)``, biases with variance ``1 / outputs``. They are drawn from torch's global
generator, so ranks that seed it alike start alike.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, Protocol, runtime_checkable

from torch import Tensor, nn

from laconic.errors import ConfigError

__all__ = ["Model", "check_embeddings", "check_sizes", "linear", "mlp"]


def linear(inputs: int, outputs: int) -> nn.Linear:
    """Make one layer, without an activation."""
    layer = nn.Linear(inputs, outputs)
    nn.init.normal_(layer.weight, 0.0, math.sqrt(2 / (inputs + outputs)))
    nn.init.normal_(layer.bias, 0.0, math.sqrt(1 / outputs))
    return layer


def mlp(where: str, inputs: int, sizes: tuple[int, ...]) -> nn.Sequential:
    """Make layers of these sizes with a ReLU after each; ``where`` begins an error's text."""
    if any(size < 1 for size in sizes):
        raise ConfigError(f"{where}: expected layer sizes >= 1, got {tuple(sizes)!r}")
    layers: list[nn.Module] = []
    for size in sizes:
        layers += [linear(inputs, size), nn.ReLU()]
        inputs = size
    return nn.Sequential(*layers)


@runtime_checkable
class Model(Protocol):
    """An ``nn.Module`` in two parts; a batch without samples has no logits and zero gradients."""

    def dense_part(self, dense_BF: Tensor) -> Tensor:
        """Return what can be computed without embeddings; only ``head`` knows its shape."""

    def head(self, dense_part: Tensor, embeddings_BTD: Tensor) -> Tensor:
        """Return one logit for each sample."""

    def __call__(self, dense_BF: Tensor, embeddings_BTD: Tensor) -> Tensor:
        """Compute both parts, one after the other."""

    def parameters(self, recurse: bool = True) -> Iterator[nn.Parameter]:
        """As ``nn.Module``."""

    def named_parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        """As ``nn.Module``."""

    def train(self, mode: bool = True) -> Any:
        """As ``nn.Module``."""

    def state_dict(self) -> dict[str, Any]:
        """As ``nn.Module``."""

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> Any:
        """As ``nn.Module``."""


def check_sizes(where: str, *, least: int, **sizes: int) -> None:
    """Raise ConfigError for the first size below ``least``."""
    for name, size in sizes.items():
        if size < least:
            raise ConfigError(f"{where}.{name}: expected a number >= {least}, got {size!r}")


def check_embeddings(where: str, embeddings_BTD: Tensor, tables: int, dim: int) -> None:
    """Raise ConfigError for a wrong shape, which torch may broadcast or gather from silently."""
    shape = tuple(embeddings_BTD.shape)
    if len(shape) != 3 or shape[1:] != (tables, dim):
        raise ConfigError(f"{where}: expected embeddings of shape (samples, {tables}, {dim}), got {shape}")
