"""Which range of a row its codes cover: all of it, or less of it for a smaller error of the rest.

0 minmax
    From the smallest value to the largest.
1 greedy
    FBGEMM's search. The range is cut into 200 bins. The end that costs less error is moved in by
    one bin, until 16 % of the bins are gone. The best range on the way is taken.
2 least squares
    Starts from greedy's range. It finds the scale and bias that are best for the codes, then the
    codes that are best for those, and so on, as long as the error falls.

The error is the sum of squares over a row, in steps of the scale and then in its unit. Scale and
bias are rounded as they will be stored. Sums run over ``d = 0, 1, ...`` and every operation is
rounded to float32, so that all kernels decide alike. If squares are beyond float32 (rows of 1e19,
or of 1e-19), no range is better than another, and minmax stays.

Shapes: ``R`` rows, ``D`` numbers of a row.
"""

from __future__ import annotations

import torch
from torch import Tensor

_BINS = 200
_MOVES = 32  # 16 % of the bins
_ROUNDS = 8  # of least squares: later ones change nothing that counts


def row_ranges(x_RD: Tensor, top: int, method: int, *, half: bool) -> tuple[Tensor, Tensor]:
    """Return the values that codes 0 and ``top`` stand for, of every row; rows must be finite.

    ``half``: scale and bias will be stored as float16.
    """
    low_R, high_R = (end_R + 0.0 for end_R in torch.aminmax(x_RD, dim=1))  # + 0: no negative zero
    search = _Search(x_RD, top, half, low_R, high_R)
    if method >= 1:
        search.greedy()
    if method == 2:
        search.least_squares()
    return search.low_R, search.high_R


class _Search:
    """The best range so far, and its error."""

    def __init__(self, x_RD: Tensor, top: int, half: bool, low_R: Tensor, high_R: Tensor) -> None:
        self.x_RD, self.top, self.half = x_RD, top, half
        self.low_R, self.high_R = low_R, high_R

    def greedy(self) -> None:
        self.error_R = self._error(self.low_R, self.high_R)
        low_R, high_R = self.low_R, self.high_R
        step_R = (high_R - low_R) / _BINS
        for _ in range(_MOVES):
            up_R = self._error(low_R + step_R, high_R)
            down_R = self._error(low_R, high_R - step_R)
            from_below_R = up_R < down_R
            low_R = torch.where(from_below_R, low_R + step_R, low_R)
            high_R = torch.where(from_below_R, high_R, high_R - step_R)
            self._keep(low_R, high_R, torch.where(from_below_R, up_R, down_R))

    def least_squares(self) -> None:
        dim = self.x_RD.shape[1]
        mean_R = _sum(self.x_RD) / dim
        for _ in range(_ROUNDS):
            scale_R, bias_R = self._stored(self.low_R, self.high_R)
            codes_RD = self._codes(self._steps(scale_R, bias_R))
            code_mean_R = _sum(codes_RD) / dim
            deviation_RD = codes_RD - code_mean_R[:, None]
            spread_R = _sum(deviation_RD * deviation_RD)
            scale_R = _sum(deviation_RD * (self.x_RD - mean_R[:, None])) / spread_R
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

    def _steps(self, scale_R: Tensor, bias_R: Tensor) -> Tensor:
        return (self.x_RD - bias_R[:, None]) * (1.0 / scale_R)[:, None]

    def _codes(self, steps_RD: Tensor) -> Tensor:
        return torch.where(steps_RD > 0, steps_RD, 0.0).clamp(max=self.top).round()

    def _error(self, low_R: Tensor, high_R: Tensor) -> Tensor:
        scale_R, bias_R = self._stored(low_R, high_R)
        steps_RD = self._steps(scale_R, bias_R)
        off_RD = steps_RD - self._codes(steps_RD)
        return _sum(off_RD * off_RD) * (scale_R * scale_R)


def _sum(x_RD: Tensor) -> Tensor:
    """Sum every row, one number after the other."""
    sum_R = torch.zeros(len(x_RD))
    for x_R in x_RD.unbind(dim=1):
        sum_R += x_R
    return sum_R
