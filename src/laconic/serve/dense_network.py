"""The dense layers of an artifact, ready to run.

Consecutive int8 layers are one native call, which also rounds between them. Layers in fp32 and bf16
go through torch, whose float32 kernels are the best there are. Design note 0009 has the
measurements behind this.

Shape legend: ``B`` samples, ``F`` dense features, ``V`` vectors of a sample, ``D`` numbers of an
embedding, ``K`` inputs and ``N`` outputs of a layer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from laconic.kernels import Kernels
from laconic.quantize.formats.layers import restored_weight
from laconic.quantize.formats.trained_model import ModelShape

__all__ = ["DenseNetwork"]

Floats = NDArray[np.float32]
LayerTensors = Mapping[str, Tensor]
"""The stored tensors of one layer, by name; see ``quantize.formats.layers``."""

_ORDINARY = 1e4  # dense features up to this size overflow in no layer of a model that can be trained
_LARGEST = float(np.finfo(np.float32).max)


class Step(NamedTuple):
    """One call that computes one layer or several."""

    run: Callable[[Floats], Floats]

    limit: float
    """Largest magnitude of an input whose outputs are right; int8 codes hide what is not finite."""


class DenseNetwork:
    """Layers in their precision; never changed once made, so that threads may share it."""

    own_vectors: int
    """Number of vectors before those of the tables in a sample; ``logits`` fills them itself."""

    def __init__(
        self, shape: ModelShape, layers: Mapping[str, dict[str, Tensor]], kernels: Kernels, threads: int
    ) -> None:
        self.layers = dict(layers)
        self._shape, self._kernels, self._threads = shape, kernels, threads
        bottom = [name for name in layers if name.startswith("bottom.")]
        top = [name for name in layers if name.startswith(("top.", "deep."))]
        self._bottom = self._steps((name, True) for name in bottom)
        self._cross = [self._steps([(name, False)]) for name in layers if name.startswith("cross.")]
        self._top = self._steps([*((name, True) for name in top), ("logit", False)])
        self.own_vectors = int(shape.kind == "dlrm" and shape.dense > 0)

    def logits(self, dense_BF: Floats, vectors_BVD: Floats) -> Floats:
        """Logits, one for each sample; the first ``own_vectors`` of each sample are overwritten.

        A logit is NaN where dense features are so large that a layer would exceed float32.
        """
        usual = not dense_BF.size or max(dense_BF.max(), -dense_BF.min()) <= _ORDINARY
        lost_B = None if usual else np.zeros(len(dense_BF), dtype=bool)
        bottom = _run(self._bottom, dense_BF, lost_B)
        dlrm = self._shape.kind == "dlrm"  # not a method kept: that would be a cycle around all weights
        head = self._dlrm(bottom, vectors_BVD) if dlrm else self._dcn_v2(bottom, vectors_BVD, lost_B)
        logits_B = _run(self._top, head, lost_B)[:, 0]
        if lost_B is not None:
            logits_B[lost_B | ~np.isfinite(logits_B)] = np.nan
        return logits_B

    def _dlrm(self, bottom_BD: Floats, vectors_BVD: Floats) -> Floats:
        if self.own_vectors:
            vectors_BVD[:, 0] = bottom_BD
        samples, count, dim = vectors_BVD.shape
        out_BW = np.empty((samples, self.own_vectors * dim + count * (count - 1) // 2), np.float32)
        self._kernels.interact(vectors_BVD, self.own_vectors, out_BW, self._threads)
        return out_BW

    def _dcn_v2(self, bottom: Floats, vectors_BVD: Floats, lost_B: NDArray[np.bool_] | None) -> Floats:
        samples, count, dim = vectors_BVD.shape
        x0_BN = np.concatenate([bottom, vectors_BVD.reshape(samples, count * dim)], axis=1)
        x_BN = x0_BN
        with np.errstate(over="ignore", invalid="ignore"):  # the next layer sees to it
            for layer in self._cross:
                x_BN = x0_BN * _run(layer, x_BN, lost_B) + x_BN
        return x_BN

    def _steps(self, named: Iterable[tuple[str, bool]]) -> list[Step]:
        """Make as few calls as possible of these layers; the flag says whether a ReLU follows."""
        steps: list[Step] = []
        layers = [(self.layers[name], relu) for name, relu in named]
        for integer, group in groupby(layers, key=lambda layer: "scale" in layer[0]):
            members = list(group)
            if integer:
                steps.append(self._int8_step(members))
            else:
                steps += [_float_step(layer, relu) for layer, relu in members]
        return steps

    def _int8_step(self, layers: list[tuple[dict[str, Tensor], bool]]) -> Step:
        native, threads = self._kernels.int8_layers(), self._threads
        for layer, relu in layers:
            native.add(
                layer["weight"].numpy(),
                layer["scale"].numpy(),
                _array(layer, "bias"),
                _array(layer, "equal"),
                _array(layer, "range"),
                relu,
            )
        outputs = len(layers[-1][0]["weight"])

        def step(x_BK: Floats) -> Floats:
            out_BN = np.empty((len(x_BK), outputs), np.float32)
            native.run(x_BK, out_BN, threads)
            return out_BN

        return Step(step, _int8_limit(layer for layer, _ in layers))


def _run(steps: list[Step], x_BK: Floats, lost_B: NDArray[np.bool_] | None) -> Floats:
    """Compute layers; ``lost_B`` becomes true for samples that one of them cannot compute."""
    for step in steps:
        if lost_B is not None:
            lost_B |= ~(np.abs(x_BK) <= step.limit).all(axis=1)
        x_BK = step.run(x_BK)
    return x_BK


def _int8_limit(layers: Iterable[LayerTensors]) -> float:
    """Largest input for which no output of these int8 layers can exceed float32, by any signs."""
    limit, gain, shift = _LARGEST, 1.0, 0.0
    for layer in layers:
        weight_NK = layer["weight"].double().abs() * layer["scale"].double().unsqueeze(1)
        equal_K = layer.get("equal")
        weight_NK = weight_NK if equal_K is None else weight_NK * equal_K.double().abs()
        # Twice the sum: codes are rounded, and sums may be in any order.
        grown = 2 * max(float(weight_NK.sum(dim=1).max()), 1.0)
        bias_N = layer.get("bias")
        shift = shift * grown + (0.0 if bias_N is None else float(bias_N.abs().max()))
        gain *= grown
        limit = min(limit, (_LARGEST - shift) / gain)
    return limit


def _float_step(layer: dict[str, Tensor], relu: bool) -> Step:
    weight_NK, bias_N = restored_weight(layer), layer.get("bias")

    def step(x_BK: Floats) -> Floats:
        with torch.inference_mode():
            out_BN = torch.nn.functional.linear(torch.from_numpy(x_BK), weight_NK, bias_N)
            return (out_BN.relu_() if relu else out_BN).numpy()

    return Step(step, _LARGEST)


def _array(layer: LayerTensors, name: str) -> Any:
    tensor = layer.get(name)
    return None if tensor is None else tensor.numpy()
