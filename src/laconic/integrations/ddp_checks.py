"""What ``register_ddp`` refuses before the first step, and what it says about parameters that it leaves to DDP."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence

import torch
from torch import nn

from laconic.codecs.codec import expect_codec
from laconic.errors import ConfigError
from laconic.reduce import LargeFirst, Levels

__all__ = ["check_arguments", "check_lossy_parameters", "warn_of_foreign_parameters"]


def check_arguments(
    *,
    codec: object,
    large: object,
    rounded: object,
    network: object,
    include: object,
    exclude: object,
    warmup: object,
) -> None:
    """Refuse what is of another kind than the argument's."""
    if isinstance(codec, LargeFirst):
        raise ConfigError(f"register_ddp: codec: got {codec!r}; write large= instead of codec=")
    expect_codec("register_ddp: codec", codec, Levels)
    if large is not None and not isinstance(large, LargeFirst):
        share = large if isinstance(large, float) else 0.01
        shown = f"the class {large.__name__}" if isinstance(large, type) else repr(large)
        raise ConfigError(
            f"register_ddp: large: expected a LargeFirst or None, got {shown}; "
            f"write laconic.LargeFirst(keep={share!r})"
        )
    if not isinstance(rounded, bool):
        raise ConfigError(f"register_ddp: rounded: expected True or False, got {rounded!r}")
    if network is not None and (isinstance(network, type) or not hasattr(network, "unite")):
        raise ConfigError(
            f"register_ddp: network: expected something that adds, got {network!r}; "
            "write InNetwork.from_environment()"
        )
    if (codec is not None) + (large is not None) + (rounded or network is not None) > 1:
        raise ConfigError(
            "register_ddp: expected one of codec, large, and rounded or network, got several; "
            "a LargeFirst has a codec of its own, values="
        )
    for name, patterns in (("include", include), ("exclude", exclude)):
        if isinstance(patterns, str):
            raise ConfigError(
                f"register_ddp: {name}: expected a list of names, got {patterns!r}; write [{patterns!r}]"
            )
    if isinstance(warmup, bool) or not isinstance(warmup, int) or warmup < 0:
        raise ConfigError(f"register_ddp: warmup: expected at least 0 steps, got {warmup!r}")


def check_lossy_parameters(model: nn.Module, chosen: frozenset[str], how: str) -> None:
    """Refuse parameters that were chosen and cannot travel so; ``how`` is the argument that asked for it."""
    foreign = [(name, kind) for name, kind, _ in _foreign(model, (torch.float32,)) if name in chosen]
    if foreign:
        name, kind = foreign[0]
        raise ConfigError(
            f"register_ddp: {how}: expected dense float32 gradients on the CPU, got {kind} of "
            f"{name!r}{_and_others(foreign)}; leave them to DDP with exclude={[name for name, _ in foreign]!r}, "
            f"or convert them"
        )


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
