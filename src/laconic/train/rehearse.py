"""From the settings of a run to its rehearsal, in which things are tried out before ranks start."""

from __future__ import annotations

from collections.abc import Callable

from laconic.adapt.policy import FixedPolicy
from laconic.adapt.tune.run import RehearsedRun
from laconic.data import Source
from laconic.exchange.exchange_plan import ExchangePlan
from laconic.train.limits import check_memory
from laconic.train.placement import Placement
from laconic.train.ranks import Ranks
from laconic.train.settings import RunSettings
from laconic.train.trainer import Trainer

__all__ = ["rehearse"]


def rehearse(
    settings: RunSettings, source: Source, ranks: int, done: Callable[[], None] = lambda: None
) -> RehearsedRun:
    """Return a new model that trains as ``ranks`` would; ``done`` follows each piece of work.

    All that ranks ask for travels, as where there are many more of them.
    """
    check_memory(settings, Placement.from_settings(settings, source.schema), Ranks(0, 1))
    exact = FixedPolicy(ExchangePlan.exact(source.schema.tables))
    trainer = Trainer(settings, source.schema, Ranks(0, 1, rehearsed=ranks, all_remote=True), exact)
    batches = source.batches("train", global_batch=settings.train.batch * ranks, rank=0, ranks=1)
    return RehearsedRun(trainer, batches, ranks, done)
