"""``DistributedDataParallel``: gradients that travel as little as they can, for one line in a script.

::

    model = DistributedDataParallel(model)
    compressor = laconic.register_ddp(model)                                # lossless
    compressor = laconic.register_ddp(model, laconic.Levels())              # within a ninth of each entry
    compressor = laconic.register_ddp(model, laconic.LargeFirst(0.01)) # large entries first (DCT)

Gradient accumulation, ``no_sync`` and buckets that DDP rebuilds work as without. Where compression does not pay, a
bucket travels as DDP would send it, and is counted as bypassed; ``compressor.report()`` says why. What thresholding holds
back is in ``compressor.state_dict()``: each rank saves and loads its own.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from typing import Literal

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from laconic.codecs.codec import expect_codec
from laconic.errors import ConfigError
from laconic.exchange.world import World
from laconic.integrations.ddp_hook import Compressor, HookSettings, Method, ddp_hook
from laconic.reduce import Exact, LargeFirst, Levels, Rounded

__all__ = ["Compressor", "Method", "register_ddp"]


def register_ddp(
    model: DistributedDataParallel,
    method: Method | None = None,
    *,
    include: Sequence[str] = ("*",),
    exclude: Sequence[str] = (),
    warmup: int = 0,
    reduction: Literal["mean", "sum"] = "mean",
    bypass: bool = True,
    world: World | None = None,
) -> Compressor:
    """Let a model's gradients travel compressed; every rank calls it, after wrapping the model.

    Without a ``method`` nothing is lost: zeros are left out, or bytes coded losslessly, whichever is faster. ``Exact()``
    leaves out zeros only. A codec makes every parameter a block of it: ``Lossless()`` changes no bit, ``Levels()`` suits
    any optimizer, bounded ones should round without bias (``rounding="unbiased"``). ``LargeFirst()``: large entries are
    sent, the rest waits in memory. ``Rounded()``: gradients are summed as int32 multiples of a shared step, by the ranks, or by
    a network that adds (``InNetwork``); the result is the same bits.

    Parameters whose names do not match ``include``, or match ``exclude``, stay exact, and so do all in the first
    ``warmup`` steps. ``reduction="sum"``: for a loss that is already divided by the global batch.
    ``bypass=False``: compress even where the link is so fast that it does not pay.

    Parameters that a method compresses need dense float32 gradients on the CPU; others that were not excluded are a
    ``ConfigError``. Without a method they travel as DDP sends them, and a warning says so.
    """
    model = getattr(model, "_orig_mod", model)  # what torch.compile was given
    if not isinstance(model, DistributedDataParallel):
        raise ConfigError(
            f"register_ddp: expected a DistributedDataParallel model, got {type(model).__name__}; wrap it first"
        )
    _check_arguments(method=method, include=include, exclude=exclude, warmup=warmup, reduction=reduction)
    names = {id(parameter): name for name, parameter in model.module.named_parameters()}
    chosen = {name for name in names.values() if _matches(name, include) and not _matches(name, exclude)}
    if method is not None and not isinstance(method, Exact) and not chosen:
        raise ConfigError(
            f"register_ddp: include={list(include)!r} and exclude={list(exclude)!r} leave no parameter of "
            f"{', '.join(sorted(names.values())[:5])}, ..."
        )
    if method is None or isinstance(method, Exact):
        _warn_of_foreign_parameters(model.module)
        chosen -= _names_of_others(model.module)
    else:
        _check_lossy_parameters(model.module, frozenset(chosen), type(method).__name__)
    settings = HookSettings(method, frozenset(chosen), warmup, reduction == "mean", bypass)
    compressor = Compressor(settings, names, model.process_group, world)
    model.register_comm_hook(compressor, ddp_hook)
    return compressor


def _check_arguments(
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


def _check_lossy_parameters(model: nn.Module, chosen: frozenset[str], how: str) -> None:
    """Refuse parameters that were chosen and cannot travel so; ``how`` is the method that was asked for."""
    foreign = [(name, kind) for name, kind, _ in _foreign(model, (torch.float32,)) if name in chosen]
    if foreign:
        name, kind = foreign[0]
        raise ConfigError(
            f"register_ddp: {how}: expected dense float32 gradients on the CPU, got {kind} of "
            f"{name!r}{_and_others(foreign)}; leave them to DDP with exclude={[name for name, _ in foreign]!r}, "
            f"or convert them"
        )


def _names_of_others(model: nn.Module) -> set[str]:
    """Names of parameters whose gradients are not dense float32 on the CPU: no codec takes them."""
    return {name for name, _, _ in _foreign(model, (torch.float32,))}


def _warn_of_foreign_parameters(model: nn.Module) -> None:
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


def _matches(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)
