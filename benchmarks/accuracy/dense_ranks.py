"""Gradients of the dense part as several ranks would sum them, for a model in one process.

Every rank has its part of the batch and copies of the parameters, which share their memory but have
gradients of their own. Before an update, ranks sum them by the code that real ranks run, a thread
each. Rows need none of this: a ``LocalWorld`` has all ranks of them.

Shape legend: ``B`` samples, ``T`` tables, ``D`` dimensions.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.func import functional_call

from laconic.cost.link import ring_bytes
from laconic.exchange.ranks.transport import bounds_of
from laconic.exchange.ranks.world import LocalWorld
from laconic.integrations.divided_steps import DividedSteps
from laconic.reduce import LargeFirst, LayerMemory, Levels, Reducer

Floats = NDArray[np.float32]


class DenseRanks(nn.Module):
    """Computes what a model does, rank by rank; ``follow`` its optimizer to sum gradients."""

    def __init__(self, model: nn.Module, ranks: int, method: LargeFirst | Levels) -> None:
        super().__init__()
        self._model, self._method = model, method
        named = dict(model.named_parameters())
        self._parameters_of_model = list(named.values())
        self._copies = [
            {name: parameter.detach().requires_grad_() for name, parameter in named.items()}
            for _ in range(ranks)
        ]
        sizes = [parameter.numel() for parameter in self._parameters_of_model]
        self._layers = bounds_of(np.array(sizes, np.int64))
        world = LocalWorld(ranks)
        self._reducers = [Reducer(world.of(rank)) for rank in range(ranks)]
        self._memory = [LayerMemory(sizes) for _ in range(ranks)]
        self._threads = ThreadPoolExecutor(ranks)
        self._steps = self._exact_steps = 0
        self._divided: DividedSteps | None = None

    def follow(self, optimizer: torch.optim.Optimizer) -> None:
        """Sum gradients before each step of an optimizer, or steps of it where these travel."""
        optimizer.register_step_pre_hook(self._sum_gradients)
        if isinstance(self._method, LargeFirst):
            self._divided = DividedSteps(optimizer, {id(each): "" for each in self._parameters_of_model})

    @property
    def ratio(self) -> float:
        """Bytes of a ring all-reduce of float32 over those that ranks sent."""
        sent = sum(reducer.channel.bytes_sent for reducer in self._reducers)
        ring = ring_bytes(4 * int(self._layers[-1]), len(self._reducers)) * len(self._reducers)
        return self._steps * ring / (sent + self._exact_steps * ring)

    def forward(self, dense_BF: Tensor, rows: Any) -> Tensor:
        """Return the logits of all ranks' samples."""
        rows_BTD, ranks = rows.wait(), len(self._copies)
        parts = zip(self._copies, dense_BF.tensor_split(ranks), rows_BTD.tensor_split(ranks), strict=True)
        return torch.cat(
            [
                functional_call(self._model, copy, (mine_BF, _Here(here_BTD)))
                for copy, mine_BF, here_BTD in parts
            ]
        )

    def _sum_gradients(self, *_: Any) -> None:
        gradients = [self._take(copy) for copy in self._copies]
        self._sum_on_all_ranks(gradients)
        parts = np.split(gradients[0], self._layers[1:-1])
        for parameter, part in zip(self._parameters_of_model, parts, strict=True):
            parameter.grad = torch.from_numpy(part).view_as(parameter)
        self._steps += 1

    def close(self) -> None:
        """End the threads."""
        self._threads.shutdown()

    def _take(self, copy: dict[str, Tensor]) -> Floats:
        """Return a rank's gradients side by side, and forget them."""
        found = [torch.zeros_like(each) if each.grad is None else each.grad for each in copy.values()]
        for each in copy.values():
            each.grad = None
        return torch.cat([each.reshape(-1) for each in found]).numpy()

    def _sum_on_all_ranks(self, gradients: Sequence[Floats]) -> None:
        """Leave the sum in the first gradient, as the hook of DDP would on every rank."""
        method, divided, mine = self._method, self._divided, self._parameters_of_model
        if not isinstance(method, LargeFirst) or divided is None:
            self._sum_coded(gradients)
            return
        if not divided.ready(mine):
            np.sum(gradients, axis=0, out=gradients[0])
            self._exact_steps += 1
            return
        for gradient, memory in zip(gradients, self._memory, strict=True):
            divided.divide(gradient, memory.squares, mine, len(gradients), 1.0)
        each = zip(self._reducers, gradients, self._memory, strict=True)
        list(self._threads.map(lambda rank: rank[0].sum_large(*rank[1:], method), each))
        if (self._steps + 1) % method.agree_every == 0:
            squares = [memory.squares for memory in self._memory]
            self._sum_coded(squares)
            divided.agree(squares[0], mine)
            for square in squares:
                square[:] = 0
        divided.restore(gradients[0], mine, 1.0)

    def _sum_coded(self, values: Sequence[Floats]) -> None:
        each = zip(self._reducers, values, strict=True)
        list(
            self._threads.map(
                lambda rank: rank[0].sum_coded(rank[1], self._layers, Levels(), self._steps), each
            )
        )


class _Here:
    """Rows that are there already."""

    def __init__(self, rows_BTD: Tensor) -> None:
        self._rows_BTD = rows_BTD

    def wait(self) -> Tensor:
        return self._rows_BTD
