"""Which range of a row its codes cover: all of it, or less of it for a smaller error of the rest.

minmax
    From the smallest value to the largest.
greedy
    FBGEMM's search: the range is cut into 200 bins; whichever end costs less error is moved in by one bin, until
    16 % of the bins are gone; the best range on the way is taken.
l2
    From greedy's range on: the scale and bias that are best for the codes (least squares), and the codes that are
    best for those, in turn, as long as the error falls.

The error is the sum of squares over a row, with scale and bias rounded as they will be stored.
Shape legend: ``R`` rows, ``D`` numbers of a row.
"""

from __future__ import annotations

from enum import StrEnum

import torch
from torch import Tensor

__all__ = ["Ranges", "search_range"]

_BINS = 200
_STOP = 0.16
_ROUNDS = 8  # of least squares: later ones change nothing that counts


class Ranges(StrEnum):
    """How the range of a row is chosen."""

    MINMAX = "minmax"
    L2 = "l2"
    GREEDY = "greedy"


def search_range(x_RD: Tensor, top: int, ranges: Ranges, *, half: bool) -> tuple[Tensor, Tensor]:
    """Smallest and largest value that codes 0 and ``top`` stand for, of every row; finite rows only.

    ``half``: scale and bias will be stored as float16.
    """
    low_R, high_R = torch.aminmax(x_RD, dim=1)
    if ranges is Ranges.MINMAX:
        return low_R, high_R
    search = _Search(x_RD, top, half, low_R, high_R)
    search.greedy()
    if ranges is Ranges.L2:
        search.least_squares()
    return search.low_R, search.high_R


class _Search:
    """The best range so far, and its error."""

    def __init__(self, x_RD: Tensor, top: int, half: bool, low_R: Tensor, high_R: Tensor) -> None:
        self.x_RD, self.top, self.half = x_RD, top, half
        self.low_R, self.high_R = low_R.clone(), high_R.clone()
        self.error_R = self._error(low_R, high_R)

    def greedy(self) -> None:
        low_R, high_R = self.low_R.clone(), self.high_R.clone()
        step_R = (high_R - low_R) / _BINS
        for _ in range(round(_BINS * _STOP)):
            up_R = self._error(low_R + step_R, high_R)
            down_R = self._error(low_R, high_R - step_R)
            from_below_R = up_R < down_R
            low_R = torch.where(from_below_R, low_R + step_R, low_R)
            high_R = torch.where(from_below_R, high_R, high_R - step_R)
            self._keep(low_R, high_R, torch.minimum(up_R, down_R))

    def least_squares(self) -> None:
        mean_R = self.x_RD.mean(dim=1)
        for _ in range(_ROUNDS):
            codes_RD = self._codes(*self._stored(self.low_R, self.high_R))
            code_mean_R = codes_RD.mean(dim=1)
            deviation_RD = codes_RD - code_mean_R[:, None]
            spread_R = deviation_RD.square().sum(dim=1)
            scale_R = (deviation_RD * (self.x_RD - mean_R[:, None])).sum(dim=1) / spread_R
            usable_R = (spread_R > 0) & (scale_R > 0)
            low_R = torch.where(usable_R, mean_R - scale_R * code_mean_R, self.low_R)
            high_R = torch.where(usable_R, low_R + scale_R * self.top, self.high_R)
            if not self._keep(low_R, high_R, self._error(low_R, high_R)):
                return

    def _keep(self, low_R: Tensor, high_R: Tensor, error_R: Tensor) -> bool:
        better_R = error_R < self.error_R
        self.low_R = torch.where(better_R, low_R, self.low_R)
        self.high_R = torch.where(better_R, high_R, self.high_R)
        self.error_R = torch.where(better_R, error_R, self.error_R)
        return bool(better_R.any())

    def _stored(self, low_R: Tensor, high_R: Tensor) -> tuple[Tensor, Tensor]:
        """Scale and bias as they will be read."""
        if self.half:
            low_R = low_R.half().float()
        scale_R = (high_R - low_R) / self.top
        if self.half:
            scale_R = scale_R.half().float()
        return torch.where(scale_R > 0, scale_R, 1.0), low_R

    def _codes(self, scale_R: Tensor, bias_R: Tensor) -> Tensor:
        scaled_RD = (self.x_RD - bias_R[:, None]).mul_((1.0 / scale_R)[:, None])
        return scaled_RD.round_().clamp_(0, self.top)

    def _error(self, low_R: Tensor, high_R: Tensor) -> Tensor:
        scale_R, bias_R = self._stored(low_R, high_R)
        off_RD = self._codes(scale_R, bias_R).mul_(scale_R[:, None]).add_(bias_R[:, None]).sub_(self.x_RD)
        return off_RD.square_().sum(dim=1)
