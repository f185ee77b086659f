"""How a DLRM is split among workers, rehearsed in one process.

======== =====================================================================================
stages   worker 1 has embeddings, bottom MLP, interaction and the first layer of the top MLP, worker 2 the
         rest; of three, worker 2 has the second layer of the top MLP and worker 3 what follows
neurons  every worker has an equal share of the neurons of every layer and gets the others' activations;
         embeddings, interaction and logit are on the first
======== =====================================================================================
"""

from __future__ import annotations

from typing import Literal

from torch import Tensor, nn

from laconic.codecs.threshold import Threshold
from laconic.errors import ConfigError
from laconic.models import DLRM, Model
from laconic.nn import RehearsedDividedMlp, RehearsedSplit

__all__ = ["Form", "split_model"]

Form = Literal["stages", "neurons"]


def split_model(model: Model, form: Form, workers: int, threshold: Threshold) -> list[RehearsedSplit]:
    """Put splits into a DLRM, whose parameters stay what they are; return them."""
    assert isinstance(model, DLRM), "the benchmark trains DLRMs"
    layers = len(model.top) // 2
    if workers < 2 or (form == "stages" and workers > layers + 1):
        raise ConfigError(f"workers: expected 2 to {layers + 1}, got {workers!r}")
    if form == "stages":
        for k in reversed(range(workers - 1)):
            split = RehearsedSplit(k, k + 1, threshold=threshold, name=f"top.{k}")
            model.top.insert(2 * k + 2, _Stage(split))
    else:
        bottom = RehearsedDividedMlp(
            model.bottom, workers, shared_input=True, threshold=threshold, name="bottom"
        )
        top = RehearsedDividedMlp(model.top, workers, threshold=threshold, name="top")
        model.bottom, model.top = bottom, top  # type: ignore[assignment]
    return [module for module in model.modules() if isinstance(module, RehearsedSplit)]


class _Stage(nn.Module):
    """A split from one worker to the next."""

    def __init__(self, split: RehearsedSplit) -> None:
        super().__init__()
        self.split = split

    def forward(self, x_BD: Tensor) -> Tensor:
        (x_BD,) = self.split([x_BD])
        return x_BD
