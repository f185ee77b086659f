"""What ``register_ddp`` was told, what it refuses, and what it says about parameters that it leaves to DDP."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import nn

from laconic.codecs import Lossless
from laconic.codecs.batch import BlockCodec
from laconic.codecs.codec import expect_codec
from laconic.errors import ConfigError
from laconic.reduce import Exact, LargeFirst, Levels, Network, Rounded

__all__ = [
    "HookSettings",
    "Method",
    "check_arguments",
    "check_lossy_parameters",
    "names_of_others",
    "warn_of_foreign_parameters",
]


Method = Exact | BlockCodec | Levels | LargeFirst | Rounded | Network
"""What gradients travel as."""


@dataclass(frozen=True, slots=True)
class HookSettings:
    """How gradients travel."""

    method: Method | None
    chosen: frozenset[str]
    """Parameters that travel by the method."""
    warmup: int
    average: bool
    bypass: bool

    @property
    def codec(self) -> BlockCodec | Levels | None:
        """What blocks are coded by."""
        if self.method is None:
            return Lossless()
        known = self.exact or self.large is not None or self.rounded
        return None if known else self.method  # type: ignore[return-value]

    @property
    def large(self) -> LargeFirst | None:
        """Which entries are sent first."""
        return self.method if isinstance(self.method, LargeFirst) else None

    @property
    def network(self) -> Network | None:
        """Who adds, if not the ranks."""
        return self.method if hasattr(self.method, "unite") else None  # type: ignore[return-value]

    @property
    def rounded(self) -> bool:
        """Whether gradients are summed as integers."""
        return isinstance(self.method, Rounded) or self.network is not None

    @property
    def exact(self) -> bool:
        """Whether zeros are all that may be left out."""
        return isinstance(self.method, Exact)


def check_arguments(
    *, method: object, include: object, exclude: object, warmup: object, reduction: object
) -> None:
    """Refuse what is of another kind than the argument's."""
    if isinstance(method, type) and issubclass(method, LargeFirst):
        raise ConfigError("register_ddp: method: got the class LargeFirst; write laconic.LargeFirst(0.01)")
    adds = hasattr(method, "unite") and not isinstance(method, type)
    if not isinstance(method, Exact | LargeFirst | Rounded) and not adds:
        expect_codec("register_ddp: method", method, Levels)
    if reduction not in ("mean", "sum"):
        raise ConfigError(f"register_ddp: reduction: expected 'mean' or 'sum', got {reduction!r}")
    for name, patterns in (("include", include), ("exclude", exclude)):
        if isinstance(patterns, str):
            raise ConfigError(
                f"register_ddp: {name}: expected a list of names, got {patterns!r}; write [{patterns!r}]"
            )
    if isinstance(warmup, bool) or not isinstance(warmup, int) or warmup < 0:
        raise ConfigError(f"register_ddp: warmup: expected at least 0 steps, got {warmup!r}")


def check_lossy_parameters(model: nn.Module, chosen: frozenset[str], how: str) -> None:
    """Refuse parameters that were chosen and cannot travel so; ``how`` is the method that was asked for."""
    foreign = [(name, kind) for name, kind, _ in _foreign(model, (torch.float32,)) if name in chosen]
    if foreign:
        name, kind = foreign[0]
        raise ConfigError(
            f"register_ddp: {how}: expected dense float32 gradients on the CPU, got {kind} of "
            f"{name!r}{_and_others(foreign)}; leave them to DDP with exclude={[name for name, _ in foreign]!r}, "
            f"or convert them"
        )


def names_of_others(model: nn.Module) -> set[str]:
    """Names of parameters whose gradients are not dense float32 on the CPU: no codec takes them."""
    return {name for name, _, _ in _foreign(model, (torch.float32,))}


def warn_of_foreign_parameters(model: nn.Module) -> None:
    """Say which gradients travel as DDP sends them, because kernels sum others."""
    foreign = [
        (name, kind) for name, kind, sparse in _foreign(model, (torch.float32, torch.float64)) if not sparse
    ]
    if foreign:
        name, kind = foreign[0]
        warnings.warn(
            f"register_ddp: {kind} of {name!r}{_and_others(foreign)} travel as DDP sends them; "
            "only gradients of float32 and float64 on the CPU can leave out zeros",
            stacklevel=3,
        )


def _foreign(model: nn.Module, types: Sequence[torch.dtype]) -> Iterator[tuple[str, str, bool]]:
    """Names of trained parameters that are of no such type, what their gradients are, and whether they are sparse."""
    sparse = _sparse_parameters(model)
    for name, parameter in model.named_parameters():
        if not parameter.requires_grad:
            continue
        if id(parameter) in sparse:
            yield name, "sparse gradients", True
        elif parameter.dtype not in types or parameter.device.type != "cpu":
            yield name, f"gradients of {parameter.dtype} on {parameter.device}", False


def _sparse_parameters(model: nn.Module) -> set[int]:
    """Find the parameters whose gradients DDP expects to be sparse, as it does."""
    tables = (m for m in model.modules() if isinstance(m, (nn.Embedding, nn.EmbeddingBag)) and m.sparse)
    return {id(parameter) for table in tables for parameter in table.parameters(recurse=False)}


def _and_others(foreign: Sequence[tuple[str, str]]) -> str:
    return f" and {len(foreign) - 1} others" if len(foreign) > 1 else ""
