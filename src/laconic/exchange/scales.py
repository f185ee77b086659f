"""What relative bounds are shares of: a table's range, root mean square and rows, on all ranks.

A bound that is a share of each *block* depends on how many ranks there are: on hundreds of them a
block holds less than a row. So ranks measure what they send, add it up now and then, and all use
the same absolute bound for a table until they add up again. Until they first did, a bound is a
share of the block.

**The square root of rows.** Every sample looks up every table, so an error of one size costs about
as much in any of them, but tables send very different numbers of rows. The sum of the squares of
all bounds (harm) is given; bits are the sum of ``rows * log2(1 / bound)``. They are fewest where
bounds are in proportion to the square root of the rows that a table sends. ``by_rows`` asks for
that; the mean table keeps the bound that was written.

Shape legend: ``M`` other ranks, ``N`` ranks, ``P`` parts of tables, ``R`` rows, ``D`` dimensions,
``K`` figures of a direction, ``F`` of all.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from laconic.codecs import BoundedRows
from laconic.codecs.batch import BlockCodec
from laconic.exchange.exchange_plan import ExchangePlan
from laconic.exchange.ledger import Direction
from laconic.exchange.noise import NoiseCount
from laconic.exchange.ranks.stages import Stages
from laconic.exchange.ranks.transport import Message, Transport

__all__ = ["Scales", "TableScales", "agrees_after"]

Bits = NDArray[np.bool_]
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Rows = NDArray[Any]

_EVERY = 256  # steps between two sums, once training is under way; before, they double
_WINDOW = 8  # steps before a sum in which ranks measure: one step says little of a table of three rows
_LOW, _HIGH, _SQUARES, _VALUES, _ROWS = range(5)
_EMPTY = np.array([np.inf, -np.inf, 0.0, 0.0, 0.0])
_DIRECTIONS: tuple[Direction, Direction] = ("forward", "backward")


def agrees_after(steps: int) -> bool:
    """Whether ranks add up what they measured when so many steps are done."""
    return steps % _EVERY == 0 if steps > _EVERY else steps & (steps - 1) == 0


@dataclass(frozen=True, slots=True, eq=False)
class Scales:
    """What all ranks sent of each part, in one direction; 0 for what nobody sent."""

    range_P: Floats
    """Largest less smallest value."""
    rms_P: Floats
    """Root of the mean square of all values."""
    rows_P: Floats
    """Rows that were sent."""

    @classmethod
    def of(cls, figures_KP: Floats) -> Scales:
        """Make them of sums over ranks and steps."""
        low_P, high_P, squares_P, values_P, rows_P = figures_KP
        range_P = np.where(values_P > 0, high_P - low_P, 0.0)
        return cls(range_P, np.sqrt(squares_P / np.maximum(values_P, 1)), rows_P)

    def codec(self, codec: BlockCodec | None, part: int, share: float) -> BlockCodec | None:
        """Return a codec with an absolute bound, where this says what its bound is a share of."""
        if not _is_relative(codec):
            return codec
        assert isinstance(codec, BoundedRows), "relative"
        scale = float((self.range_P if codec.relative_to == "range" else self.rms_P)[part])
        bound = codec.bound * scale * share
        # what was all zeros, or too small for a bound of float32, is left to each block
        return replace(codec, bound=bound, relative_to=None) if bound > 1e-37 else codec

    def shares(self, by_rows_P: Bits) -> Floats:
        """Return what bounds of these parts are multiplied by: 1 for their mean, and for others."""
        rows_P = np.where(by_rows_P, self.rows_P, 0.0)
        mean = rows_P.sum() / max(np.count_nonzero(rows_P), 1)
        return np.where(rows_P > 0, np.sqrt(rows_P / mean if mean else 1.0), 1.0)


class TableScales:
    """Measures what one rank sends, and knows what all ranks sent when they last added it up."""

    def __init__(self, parts: int) -> None:
        """``parts``: how many there are; of no parts, nothing is measured."""
        self._parts = parts
        self._agreed_KP: dict[Direction, Floats] = {}
        self._noted_KP = self._nothing()
        self.noise_2P = np.zeros((2, self._parts))
        """What noise in rows cost a step's loss when ranks last added it up, and what noise of
        variance 1 in every row would."""
        self.agreements = 0
        """How often ranks have added up: codecs change with it."""

    def codecs(self, plan: ExchangePlan, direction: Direction) -> list[BlockCodec | None]:
        """Return the codecs of all parts in one direction, relative bounds made absolute."""
        codecs = [getattr(table, direction) for table in plan.tables]
        if direction not in self._agreed_KP:
            return codecs
        scales = Scales.of(self._agreed_KP[direction])
        share_P = scales.shares(np.array([direction in table.by_rows for table in plan.tables]))
        return [scales.codec(codec, part, float(share_P[part])) for part, codec in enumerate(codecs)]

    def of(self, direction: Direction) -> Scales | None:
        """Return what all ranks sent in one direction; None before they first added it up."""
        return Scales.of(self._agreed_KP[direction]) if direction in self._agreed_KP else None

    def listens(self, step: int, plan: ExchangePlan) -> bool:
        """Whether ranks add up soon, so that this step is measured."""
        return self.needed(plan) and any(self._due(step + k) for k in range(_WINDOW))

    def note(
        self, direction: Direction, step: int, plan: ExchangePlan, rows_RD: Rows, counts_MP: Ints
    ) -> None:
        """Measure rows that this rank sends, if ranks add up soon."""
        if not counts_MP.size or not self.listens(step, plan):
            return
        low_R, high_R, squares_R, values_R = _of_rows(rows_RD)
        figures_KP = self._noted_KP[direction]
        low_P = _by_part(np.minimum, low_R, counts_MP, np.inf)
        high_P = _by_part(np.maximum, high_R, counts_MP, -np.inf)
        figures_KP[_LOW] = np.minimum(figures_KP[_LOW], low_P)
        figures_KP[_HIGH] = np.maximum(figures_KP[_HIGH], high_P)
        figures_KP[_SQUARES] += _by_part(np.add, squares_R, counts_MP, 0.0)
        figures_KP[_VALUES] += _by_part(np.add, values_R, counts_MP, 0.0)
        figures_KP[_ROWS] += counts_MP.sum(axis=0)

    def agree(self, step: int, plan: ExchangePlan, noise: NoiseCount, transport: Transport) -> Stages[int]:
        """Add up what all ranks noted and counted, if it is time; returns the bytes sent."""
        if not self.needed(plan) or not self._due(step):
            return 0
        own = np.concatenate([*(self._noted_KP[way].ravel() for way in _DIRECTIONS), noise.take().ravel()])
        ranks, sent = transport.ranks, transport.bytes_sent
        everyone = np.empty(ranks * len(own))
        swapped = transport.begin_swap(everyone, Message.same(own, ranks), np.full(ranks, len(own)))
        yield
        swapped()
        figures_NFP = everyone.reshape(ranks, -1, self._parts)
        for k, direction in enumerate(_DIRECTIONS):
            self._take(direction, figures_NFP[:, k * len(_EMPTY) : (k + 1) * len(_EMPTY)])
        self.noise_2P = figures_NFP[:, 2 * len(_EMPTY) :].sum(axis=0)
        self._noted_KP = self._nothing()
        self.agreements += 1
        return transport.bytes_sent - sent

    def _take(self, direction: Direction, figures_NKP: Floats) -> None:
        new_KP = figures_NKP.sum(axis=0)
        new_KP[_LOW], new_KP[_HIGH] = figures_NKP[:, _LOW].min(axis=0), figures_NKP[:, _HIGH].max(axis=0)
        if direction in self._agreed_KP:  # a part that nobody looked up keeps what was known of it
            unseen_P = new_KP[_ROWS] == 0
            new_KP[:, unseen_P] = self._agreed_KP[direction][:, unseen_P]
        self._agreed_KP[direction] = new_KP

    def state(self) -> dict[str, Any]:
        """Return what a checkpoint of this rank needs."""
        return {
            "agreed": {direction: figures.tolist() for direction, figures in self._agreed_KP.items()},
            "noted": {direction: figures.tolist() for direction, figures in self._noted_KP.items()},
            "noise": self.noise_2P.tolist(),
        }

    def restore(self, state: Mapping[str, Any] | None, *, noted: bool = True) -> None:
        """Take back what ``state`` returned, also what the rank had ``noted`` since ranks agreed.

        None, of before there were scales: measure anew.
        """
        self.agreements += 1
        self._agreed_KP, self._noted_KP, self.noise_2P = {}, self._nothing(), np.zeros((2, self._parts))
        if state is not None:
            self.noise_2P = np.array(state["noise"])
            self._agreed_KP = {direction: np.array(found) for direction, found in state["agreed"].items()}
        if state is not None and noted:
            self._noted_KP = {direction: np.array(found) for direction, found in state["noted"].items()}

    def _due(self, step: int) -> bool:
        """Whether ranks add up after this step, counted from 0."""
        return not self._agreed_KP or agrees_after(step + 1)

    def needed(self, plan: ExchangePlan) -> bool:
        """Whether a plan has bounds, or one before it had: what that did is still in the rows."""
        return self._parts > 0 and (
            bool(self._agreed_KP)
            or any(isinstance(codec, BoundedRows) for table in plan.tables for codec in table.both)
        )

    def _nothing(self) -> dict[Direction, Floats]:
        return {direction: np.tile(_EMPTY[:, None], self._parts) for direction in _DIRECTIONS}


def _of_rows(rows_RD: Rows) -> tuple[Floats, Floats, Floats, Floats]:
    """Least and largest value, sum of squares and number of values of each row: finite ones."""
    with np.errstate(over="ignore", invalid="ignore"):
        squares_R = np.einsum("rd,rd->r", rows_RD, rows_RD, dtype=np.float64)
    count_R = np.full(len(rows_RD), float(rows_RD.shape[1]))
    if np.isfinite(squares_R).all():
        return rows_RD.min(axis=1, initial=np.inf), rows_RD.max(axis=1, initial=-np.inf), squares_R, count_R
    finite_RD = np.isfinite(rows_RD)
    low_R = np.where(finite_RD, rows_RD, np.inf).min(axis=1, initial=np.inf)
    high_R = np.where(finite_RD, rows_RD, -np.inf).max(axis=1, initial=-np.inf)
    squares_R = np.square(np.where(finite_RD, rows_RD, 0), dtype=np.float64).sum(axis=1)
    return low_R, high_R, squares_R, finite_RD.sum(axis=1).astype(np.float64)


def _is_relative(codec: BlockCodec | None) -> bool:
    """Whether a codec's bound is a share of a table's scale; SC'24's are shares of their blocks."""
    return isinstance(codec, BoundedRows) and codec.relative_to is not None


def _by_part(add: np.ufunc, figure_R: Rows, counts_MP: Ints, empty: float) -> Floats:
    """Reduce a figure of each row over the blocks of each part."""
    counts = counts_MP.ravel()
    full = np.flatnonzero(counts)
    found = np.full(len(counts), empty)
    if len(full):
        found[full] = add.reduceat(figure_R, (np.cumsum(counts) - counts)[full])
    result: Floats = add.reduce(found.reshape(counts_MP.shape), axis=0)
    return result
