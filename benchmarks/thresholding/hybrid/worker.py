"""One rank of the benchmark; started by ``WorkerPool`` as ``python -m benchmarks.thresholding.hybrid.worker JOBS ANSWERS``."""

from __future__ import annotations

import ctypes
import statistics
from dataclasses import dataclass, field
from itertools import islice

import torch

from benchmarks.thresholding.hybrid.jobs import PARTS, Answer, Steps
from benchmarks.thresholding.hybrid.methods import find_method
from benchmarks.thresholding.hybrid.part import Groups, Part
from benchmarks.worker import Measured, measure, serve
from laconic.data import open_source
from laconic.train.ranks import Ranks, process_group

_MMAP_THRESHOLD, _TRIM_THRESHOLD = -3, -1  # of mallopt
_BATCHES = 8  # made before the clock starts, used in turn


@dataclass(slots=True)
class _Figures:
    part: Part
    measured: list[Measured] = field(default_factory=list)
    bytes_split: float = 0.0
    bytes_dense: float = 0.0


class _Worker:
    """Keeps models from one job to the next that differs only in repeats: making them takes longer than a step."""

    def __init__(self, ranks: Ranks) -> None:
        self._ranks, self._groups = ranks, Groups(ranks)
        self._key, self._parts = "", dict[str, Part]()

    def do(self, job: Steps) -> list[Answer]:
        """Time steps; who begins a round changes."""
        self._prepare(job)
        all_figures = [_Figures(self._parts[name]) for name in job.methods]
        for turn in range(job.rounds):
            for k in range(len(all_figures)):
                self._time(all_figures[(turn + k) % len(all_figures)], job.steps)
        return [self._answer(figures, name) for name, figures in zip(job.methods, all_figures, strict=True)]

    def close(self) -> None:
        for part in self._parts.values():
            part.close()

    def _prepare(self, job: Steps) -> None:
        key = job.model_copy(update={"methods": (), "rounds": 1, "steps": 1}).model_dump_json()
        if key != self._key:
            self.close()
            self._key, self._parts = key, {}
        missing = [name for name in job.methods if name not in self._parts]
        if not missing:
            return
        source, groups = open_source(job.data), self._groups
        batches = source.batches(
            "train", global_batch=job.batch * groups.replicas, rank=groups.replica, ranks=groups.replicas
        )
        few = list(islice(batches, _BATCHES))
        for name in missing:
            self._parts[name] = Part(job, find_method(name), source.schema, few, groups)

    def _time(self, figures: _Figures, steps: int) -> None:
        part, calls = figures.part, steps + 1
        before = part.bytes_sent()
        figures.measured.append(measure(self._ranks, part.step, steps, skip=1))
        figures.bytes_split, figures.bytes_dense = (
            (now - then) / calls for now, then in zip(part.bytes_sent(), before, strict=True)
        )

    def _answer(self, figures: _Figures, name: str) -> Answer:
        part = figures.part
        place = self._groups.part
        own = (place, part.weights(), part.loss, figures.bytes_split, figures.bytes_dense)
        seen = self._ranks.gather(own)
        equal = len({(place, weights) for place, weights, *_ in seen}) == PARTS
        return Answer(
            method=name,
            round_ms=tuple(measured.times_ms for measured in figures.measured),
            bytes_sent=statistics.median(measured.bytes_sent for measured in figures.measured),
            bytes_split=statistics.fmean(split for *_, split, _ in seen),
            bytes_dense=statistics.fmean(dense for *_, dense in seen),
            equal=equal,
            loss=statistics.fmean(loss for place, _, loss, *_ in seen if place == 0),
        )


def _keep_memory() -> None:
    """Let what is freed stay with the process: whether glibc returns it is luck, and faults on new pages cost a lot."""
    libc = ctypes.CDLL(None)
    for option in (_MMAP_THRESHOLD, _TRIM_THRESHOLD):
        libc.mallopt(option, 1 << 30)


def main() -> None:
    """Work until told to stop."""
    torch.set_num_threads(1)
    _keep_memory()
    with process_group(timeout_s=600) as ranks:
        worker = _Worker(ranks)
        serve(ranks, {Steps: worker.do})
        worker.close()


if __name__ == "__main__":
    main()
