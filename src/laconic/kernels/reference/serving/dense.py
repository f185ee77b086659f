"""Dense layers in int8, one after the other, and dot products of pairs.

A layer rounds its inputs, each sample by itself, to codes ``x = (code - zero) * s``::

    low, high   smallest and largest input, 0 included; or given once for all
    s           (high - low) / 255, or 1 where that is not above 0
    zero        round(-low / s)
    code        round(clamp((x - -(zero * s)) * (1 / s), 0, 255)), half to even
    out         float(sum of code * weight - zero * sum of weight) * (s * scale) + bias, then ReLU

If there is an ``equal``, inputs are multiplied with it first. Every operation is rounded to
float32. A dot product is ``((0 + x0 * y0) + x1 * y1) + ...``.

Shapes: ``B`` samples, ``K`` inputs, ``N`` outputs, ``V`` vectors of ``D`` numbers, ``P`` pairs of
them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from laconic.kernels.reference.blocks.batch import Array, check

_MOST_INPUTS = 60000


@dataclass(frozen=True, slots=True)
class _Layer:
    weights_NK: Array
    scales_N: Array
    biases_N: Array | None
    equal_K: Array | None
    range: Array | None
    relu: bool


class Int8Layers:
    """Layers that feed one another."""

    def __init__(self) -> None:
        self._layers: list[_Layer] = []

    def add(
        self,
        weights_NK: Array,
        scales_N: Array,
        biases_N: Array | None,
        equal_K: Array | None,
        range: Array | None,
        relu: bool,
    ) -> None:
        """Take one more, whose inputs are the outputs of the one before."""
        outputs, inputs = weights_NK.shape
        check(outputs > 0 and inputs > 0, "Int8Layers.add: a layer has outputs and inputs")
        check(inputs <= _MOST_INPUTS, "Int8Layers.add: sums of more than 60000 inputs may not fit 32 bits")
        fits = not self._layers or len(self._layers[-1].weights_NK) == inputs
        check(fits, "Int8Layers.add: inputs must be the outputs of the layer before")
        check(
            len(scales_N) == outputs
            and (biases_N is None or len(biases_N) == outputs)
            and (equal_K is None or len(equal_K) == inputs),
            "Int8Layers.add: scales, biases or equal of the wrong length",
        )
        holds = range is None or (
            len(range) == 2 and range[0] <= 0 <= range[1] and bool(np.isfinite(range[1] - range[0]))
        )
        check(holds, "Int8Layers.add: range must be finite and hold 0")
        self._layers.append(_Layer(weights_NK, scales_N, biases_N, equal_K, range, relu))

    def run(self, x_BK: Array, out_BN: Array, threads: int) -> None:
        """Fill ``out`` with the outputs of the last layer."""
        check(bool(self._layers), "Int8Layers.run: no layers")
        shapes = (x_BK.shape[1], out_BN.shape) == (
            self._layers[0].weights_NK.shape[1],
            (len(x_BK), len(self._layers[-1].weights_NK)),
        )
        check(shapes, "Int8Layers.run: x or out has the wrong shape")
        for layer in self._layers:
            x_BK = _layer(layer, x_BK)
        out_BN[...] = x_BK


def interact(vectors_BVD: Array, keep: int, out_BW: Array, threads: int = 1) -> None:
    """Fill rows of ``out`` with the first ``keep`` vectors, then with products of vectors j < i.

    Products come in the order of i, and of j for the same i.
    """
    samples, count, dim = vectors_BVD.shape
    check(count > 0 and keep <= count, "interact: expected at least as many vectors as are kept")
    fits = out_BW.shape == (samples, keep * dim + count * (count - 1) // 2)
    check(fits, "interact: out has the wrong shape")
    dots_BVV = np.zeros((samples, count, count), np.float32)
    for d in range(dim):
        dots_BVV += vectors_BVD[:, :, None, d] * vectors_BVD[:, None, :, d]
    rows, columns = np.tril_indices(count, -1)
    out_BW[:, : keep * dim] = vectors_BVD[:, :keep].reshape(samples, keep * dim)
    out_BW[:, keep * dim :] = dots_BVV[:, rows, columns]


def _layer(layer: _Layer, x_BK: Array) -> Array:
    if layer.equal_K is not None:
        x_BK = x_BK * layer.equal_K
    if layer.range is None:
        finite_BK = np.where(np.isfinite(x_BK), x_BK, np.float32(0.0))
        low_B, high_B = np.minimum(finite_BK.min(axis=1), 0), np.maximum(finite_BK.max(axis=1), 0)
    else:
        low_B, high_B = (np.full(len(x_BK), end, np.float32) for end in layer.range)
    extent_B = (high_B - low_B) / np.float32(255)
    s_B = np.where(extent_B > 0, extent_B, np.float32(1))
    zero_B = np.rint(-low_B / s_B)
    scaled_BK = (x_BK - -(zero_B * s_B)[:, None]) * (np.float32(1) / s_B)[:, None]
    codes_BK = np.rint(np.clip(np.nan_to_num(scaled_BK, nan=0.0), 0, 255)).astype(np.int64)
    weights_NK = layer.weights_NK.astype(np.int64)
    sums_BN = codes_BK @ weights_NK.T - zero_B.astype(np.int64)[:, None] * weights_NK.sum(axis=1)
    out_BN = sums_BN.astype(np.float32) * (s_B[:, None] * layer.scales_N)
    out_BN += np.float32(0) if layer.biases_N is None else layer.biases_N
    return np.where(out_BN > 0, out_BN, np.float32(0)) if layer.relu else out_BN
