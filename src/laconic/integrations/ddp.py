"""``DistributedDataParallel``: gradients that travel in fewer bytes, for one line in a script.

::

    model = DistributedDataParallel(model)
    compressor = laconic.register_ddp(model)                            # lossless
    compressor = laconic.register_ddp(model, laconic.Levels())          # within a ninth of a value
    compressor = laconic.register_ddp(model, laconic.LargeFirst(0.01))  # large entries first (DCT)
    compressor = laconic.register_ddp(model, laconic.LargeFirst(0.01, optimizer=adagrad))
    compressor = laconic.register_ddp(model, laconic.Compression())     # what its field dense says

Gradient accumulation, ``no_sync`` and buckets that DDP rebuilds work as without. Where compression
does not pay, a bucket travels as DDP would send it, and is counted as bypassed;
``compressor.report()`` says why. What thresholding holds back is in ``compressor.state_dict()``:
each rank saves and loads its own.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from fnmatch import fnmatchcase
from typing import Literal

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from laconic.adapt.compression import Compression
from laconic.errors import ConfigError
from laconic.exchange.ranks.world import World
from laconic.integrations.ddp_hook import Compressor, HookSettings, ddp_hook
from laconic.integrations.divided_steps import DividedSteps
from laconic.reduce import Exact, LargeFirst
from laconic.reduce.gradient_method import GradientMethod, expect_gradient_method

__all__ = ["Compressor", "register_ddp"]


def register_ddp(
    model: DistributedDataParallel,
    method: GradientMethod | Compression | None = None,
    *,
    include: str | Sequence[str] = "*",
    exclude: str | Sequence[str] = (),
    warmup: int | None = None,
    reduction: Literal["mean", "sum"] = "mean",
    bypass: bool = True,
    world: World | None = None,
) -> Compressor:
    """Let a model's gradients travel compressed; every rank calls it, after wrapping the model.

    Without a ``method`` nothing is lost: zeros are left out, or bytes coded losslessly, whichever
    is faster. On two ranks gradients have the bits of DDP's. ``Exact()`` leaves out zeros only. A
    codec makes every parameter a block of it: ``Lossless()`` changes no bit, ``Levels()`` suits
    any optimizer, bounded ones should round without bias (``rounding="unbiased"``).
    ``LargeFirst()`` sends large entries, and the rest waits in memory. ``Rounded()`` sums gradients
    as int32 multiples of a shared step; the ranks add them, or a network does (``InNetwork``), and
    the result is the same bits. A ``Compression`` says both the method (its field ``dense``) and
    the warm-up.

    ``include``, ``exclude``: one shell pattern of parameter names, or several. Parameters that no
    pattern of ``include`` matches, or one of ``exclude`` does, stay exact, and so do all in the
    first ``warmup`` steps (None: those of the ``Compression``, or 0). ``reduction="sum"`` is for a
    loss that is already divided by the global batch. ``bypass=False`` compresses even where the
    link is so fast that it does not pay. ``world`` replaces the ranks of the model's process group.

    Parameters that a method compresses need dense float32 gradients on the CPU; others that were
    not excluded are a ``ConfigError``. Without a method they travel as DDP sends them, and a
    warning says so.

    >>> model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 1))
    >>> compressor = laconic.register_ddp(model, laconic.Levels(), exclude="bias")
    >>> model(torch.ones(4, 8)).sum().backward()
    >>> compressor
    Compressor(Levels(), parameters=1, ranks=1, step=1)
    >>> compressor.report().steps
    1
    >>> compressor.close()
    """
    model = getattr(model, "_orig_mod", model)  # what torch.compile was given
    if not isinstance(model, DistributedDataParallel):
        raise ConfigError(
            f"register_ddp: expected a DistributedDataParallel model, got {type(model).__name__}; wrap it first"
        )
    if isinstance(method, Compression):
        warmup = method.warmup if warmup is None else warmup
        method = method.dense
    else:
        expect_gradient_method("register_ddp: method", method)
    warmup = 0 if warmup is None else warmup
    if isinstance(warmup, bool) or not isinstance(warmup, int) or warmup < 0:
        raise ConfigError(f"register_ddp: warmup: expected at least 0 steps, got {warmup!r}")
    if reduction not in ("mean", "sum"):
        raise ConfigError(f"register_ddp: reduction: expected 'mean' or 'sum', got {reduction!r}")
    if model._comm_hooks:
        raise ConfigError(
            f"register_ddp: expected a model without a communication hook, got one with "
            f"{model._comm_hooks[0][0].__qualname__}; wrap the model anew, DDP takes one hook only"
        )
    parameters = dict(model.module.named_parameters())
    chosen = _chosen(parameters, include, exclude)
    if method is None or isinstance(method, Exact):
        _warn_of_foreign_parameters(model.module)
        chosen -= _names_of_others(model.module)
    elif not chosen:
        raise ConfigError(
            f"register_ddp: include={include!r} and exclude={exclude!r} leave no parameter of "
            f"{', '.join(sorted(parameters)[:5])}, ..."
        )
    else:
        _check_lossy_parameters(model.module, chosen, type(method).__name__)
    with ExitStack() as undo:  # torch may refuse the hook, and nobody would close the compressor
        divided = None
        if isinstance(method, LargeFirst) and method.optimizer is not None:
            names = {id(parameters[name]): name for name in sorted(chosen)}
            divided = DividedSteps(method.optimizer, names)
            undo.callback(divided.close)
        settings = HookSettings(method, chosen, warmup, reduction == "mean", bypass, divided)
        compressor = Compressor(settings, parameters, model.process_group, world)
        undo.callback(compressor.close)
        model.register_comm_hook(compressor, ddp_hook)
        undo.pop_all()
    return compressor


def _chosen(
    names: Iterable[str], include: str | Sequence[str], exclude: str | Sequence[str]
) -> frozenset[str]:
    """Names that a pattern includes and none excludes; a text is one pattern."""
    wanted, left_out = ([given] if isinstance(given, str) else given for given in (include, exclude))
    return frozenset(name for name in names if _matches(name, wanted) and not _matches(name, left_out))


def _check_lossy_parameters(model: nn.Module, chosen: frozenset[str], how: str) -> None:
    """Refuse parameters that were chosen and cannot travel so; ``how`` is the method's name."""
    foreign = [(name, kind) for name, kind, _ in _foreign(model, (torch.float32,)) if name in chosen]
    if foreign:
        name, kind = foreign[0]
        raise ConfigError(
            f"register_ddp: {how}: expected dense float32 gradients on the CPU, got {kind} of "
            f"{name!r}{_and_others(foreign)}; leave them to DDP with exclude={[name for name, _ in foreign]!r}, "
            f"or convert them"
        )


def _names_of_others(model: nn.Module) -> set[str]:
    """Return the names of parameters that no codec takes: their gradients are not dense float32."""
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
    """Yield trained parameters of other types: name, what its gradients are, and whether sparse."""
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
