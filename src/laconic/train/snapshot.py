"""A trainer's state at one step, to which it can return: what if the last steps had been others?"""

from __future__ import annotations

from copy import deepcopy
from types import TracebackType
from typing import Self

from laconic.train.trainer import Trainer

__all__ = ["Snapshot"]


class Snapshot:
    """Taken when entered; ``go_back`` returns to it any number of times, leaving keeps what is then."""

    def __init__(self, trainer: Trainer) -> None:
        self._trainer = trainer

    def __enter__(self) -> Self:
        trainer = self._trainer
        trainer.embeddings.begin_journal()
        self._model = deepcopy(trainer.model.state_dict())
        self._optimizer = deepcopy(trainer.optimizer.state_dict())
        self._rate_share = trainer._rate_share
        self._held_back = None if trainer.compressor is None else trainer.compressor.state_dict()
        return self

    def go_back(self) -> None:
        """Make the trainer what it was; every rank alike."""
        trainer = self._trainer
        trainer.embeddings.undo()
        trainer.model.load_state_dict(self._model)
        trainer.optimizer.load_state_dict(deepcopy(self._optimizer))
        # rates are in the optimizer's state: the trainer must know which it has, or it sets no others
        trainer._rate_share = self._rate_share
        if trainer.compressor is not None and self._held_back is not None:
            trainer.compressor.load_state_dict(self._held_back)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._trainer.embeddings.end_journal()
