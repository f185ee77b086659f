"""Checkpoints: a folder per step that exists whole or not at all, and plain torch can read.

::

    checkpoints/step-00001200/
        manifest.json          step, position in the data and its identity, ranks, kind of model,
                               state of the policy, step of the compressor, checksum of every file
        dense.pt               model, its optimizer
        tables-0-of-2.pt       {table: {"first", "stride", "weight", "state", "noise"}}:
                               rows first, first + stride, ...; noise: what rounding put into them
        tables-1-of-2.pt
        bounds-0-of-2.pt       what a rank's relative bounds are shares of, where it has any
        held-0-of-2.pt         dense gradients that a rank has not sent yet, where it holds any back

Files are written to ``.partial`` and the folder renamed when all ranks are done, so a kill -9
or a full disk leaves the one before. Any number of ranks can load what any number saved. A rank
reads the files that have rows of its own, and verifies them: its share, where the number of ranks
is the same. What fails on one rank, to save or to load, is an error on all.
"""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from laconic.adapt.adaptive import AdaptivePolicy
from laconic.errors import FormatError, PlanError
from laconic.exchange import Table
from laconic.exchange.tables.shards import TableShards
from laconic.train.checkpoint_files import VERSION, SavedFiles, sync_folder, write_file
from laconic.train.data_identity import check_same_data
from laconic.train.trainer import Trainer

__all__ = [
    "Position",
    "load_checkpoint",
    "newest_checkpoint",
    "save_checkpoint",
]


@dataclass(frozen=True, slots=True)
class Position:
    """Where a run is."""

    step: int = 0
    epoch: int = 0
    sample: int = 0
    """Samples of the epoch that all ranks have trained on."""
    streams: int | None = None
    """Streams that the epoch is divided into; None: those of the ranks that go on with it."""


def save_checkpoint(
    trainer: Trainer,
    folder: Path,
    position: Position,
    keep: int,
    policy: AdaptivePolicy | None = None,
    data: dict[str, Any] | None = None,
) -> Path:
    """Save this rank's part, and as leading rank finish the checkpoint and remove old ones.

    ``data``: the identity of the training samples, for whoever resumes.
    ``PlanError`` on all ranks where one cannot write; older checkpoints are intact then.
    """
    ranks = trainer.ranks
    trainer.rows.synchronize()
    final = folder / f"step-{position.step:08d}"
    partial = folder / f".{final.name}.partial"
    try:
        ranks.together(lambda: _begin(folder, partial) if ranks.leads else None)
        written = ranks.together(lambda: _write_part(trainer, partial))
        checksums = {name: checksum for part in ranks.gather(written) for name, checksum in part.items()}
        manifest = {
            "version": VERSION,
            "ranks": ranks.count,
            "position": asdict(position),
            "kind": trainer.kind,
            "policy": {} if policy is None else policy.state(),
            "files": checksums,
        }
        if data is not None:
            manifest["data"] = data
        if trainer.compressor is not None:
            manifest["gradient_step"] = trainer.compressor.step
        ranks.together(lambda: _finish(partial, final, manifest) if ranks.leads else None)
    except OSError as error:
        if ranks.leads:
            shutil.rmtree(partial, ignore_errors=True)
        raise PlanError(
            f"{final}: the checkpoint cannot be written: {error.strerror or error}; older ones are intact, "
            "continue from them with --resume"
        ) from error
    if ranks.leads:
        for old in _finished(folder)[:-keep]:  # under another name first: a checkpoint is whole or not there
            shutil.rmtree(old.rename(folder / f".{old.name}.partial"), ignore_errors=True)
    return final


def newest_checkpoint(folder: Path) -> Path | None:
    """Return the last checkpoint that was finished."""
    finished = _finished(folder)
    return finished[-1] if finished else None


def load_checkpoint(
    trainer: Trainer,
    path: Path,
    policy: AdaptivePolicy | None = None,
    data: dict[str, Any] | None = None,
) -> Position:
    """Load what this rank needs.

    ``FormatError`` on all ranks if a file is damaged, of another model or of other ``data``.
    """
    position = trainer.ranks.together(lambda: _load(trainer, path, policy, data))
    trainer.rows.pipeline.go_to(position.step)
    return position


def _load(
    trainer: Trainer, path: Path, policy: AdaptivePolicy | None, data: dict[str, Any] | None
) -> Position:
    saved = SavedFiles(path)
    manifest = saved.manifest
    for name, mine in trainer.kind.items():
        theirs = manifest["kind"].get(name)
        if theirs != json.loads(json.dumps(mine)):
            raise FormatError(f"{path}: it is of another model: {name} is {theirs!r} there and {mine!r} here")
    if data is not None:
        check_same_data(str(path), manifest.get("data"), data)
    dense = saved.read("dense.pt")
    try:
        trainer.model.load_state_dict(dense["model"])
    except RuntimeError as error:
        raise FormatError(f"{path}: it is of another model: {str(error).splitlines()[-1].strip()}") from error
    rates = [group["lr"] for group in trainer.optimizer.param_groups]
    trainer.optimizer.load_state_dict(dense["optimizer"])
    for group, rate in zip(trainer.optimizer.param_groups, rates, strict=True):
        group["lr"] = rate  # a setting, not a state: those of the tables are not in the checkpoint either
    _load_tables(trainer, saved)
    _load_held_back(trainer, saved)
    _load_bounds(trainer, saved)
    if policy is not None:
        policy.restore(manifest.get("policy", {}))
    return Position(**manifest["position"])


def _begin(folder: Path, partial: Path) -> None:
    for left_over in folder.glob(".step-*.partial"):
        shutil.rmtree(left_over)
    partial.mkdir(parents=True)


def _write_part(trainer: Trainer, partial: Path) -> dict[str, str]:
    """Write the files of this rank; returns their checksums."""
    ranks = trainer.ranks
    if not partial.is_dir():
        raise PlanError(
            f"{partial}: rank {ranks.rank} does not see the folder that rank 0 made; "
            "put train.out on a file system that all ranks share"
        )
    name = f"tables-{ranks.rank}-of-{ranks.count}.pt"
    checksums = {name: write_file(partial / name, _tables(trainer))}
    bounds = trainer.rows.bounds_state()
    if any(state["scales"]["agreed"] for state in bounds):
        name = f"bounds-{ranks.rank}-of-{ranks.count}.pt"
        checksums[name] = write_file(partial / name, bounds)
    held = {} if trainer.compressor is None else trainer.compressor.state_dict()
    if held.get("memory"):
        name = f"held-{ranks.rank}-of-{ranks.count}.pt"
        checksums[name] = write_file(partial / name, held)
    if ranks.leads:
        dense = {"model": trainer.model.state_dict(), "optimizer": trainer.optimizer.state_dict()}
        checksums["dense.pt"] = write_file(partial / "dense.pt", dense)
    return checksums


def _finish(partial: Path, final: Path, manifest: dict[str, Any]) -> None:
    with (partial / "manifest.json").open("w") as file:
        json.dump(manifest, file, indent=2)
        file.flush()
        os.fsync(file.fileno())
    sync_folder(partial)
    partial.rename(final)
    sync_folder(final.parent)


def _tables(trainer: Trainer) -> dict[str, dict[str, Any]]:
    parts = {}
    for table in trainer.rows.layout.tables:
        ids, weight, state = trainer.rows.table_shard(table.name)
        if len(ids) and (table.sharding != "replicated" or trainer.ranks.leads):
            parts[table.name] = {"first": ids.start, "stride": ids.step, "weight": _apart(weight)}
            if state is not None:
                parts[table.name]["state"] = _apart(state)
            noise = trainer.rows.table_noise(table.name)
            if bool(noise.any()):
                parts[table.name]["noise"] = _apart(noise)
    return parts


def _apart(rows: torch.Tensor) -> torch.Tensor:
    """Return the same memory as a tensor of its own.

    Torch saves all that a view is part of, and a copy may not fit into memory.
    """
    return torch.from_numpy(rows.numpy())


def _load_tables(trainer: Trainer, saved: SavedFiles) -> None:
    first = trainer.ranks.rank if trainer.ranks.count == saved.ranks else 0
    for shards in trainer.rows.shards():
        shards.noise.reset()
        for table in trainer.rows.layout.tables:
            _load_table(shards, table, saved, first)
            _load_copies(shards, table.name, saved, first)


def _load_table(shards: TableShards, table: Table, saved: SavedFiles, first: int) -> None:
    ids, weight, state = shards.view(table.name)
    noise, loaded = shards.noise_view(table.name), 0
    for shard in saved.shards_of(table.name, first) if len(ids) else ():
        overlap = _overlap(ids, shard.ids)
        if not overlap:
            continue
        theirs = shard.read()
        if theirs["weight"].shape[1] != weight.shape[1] or shard.ids[-1] >= table.rows:
            raise FormatError(
                f"{saved.path}: table {table.name!r} has {table.rows} rows of {weight.shape[1]}, "
                f"the checkpoint row {shard.ids[-1]} and rows of {theirs['weight'].shape[1]}"
            )
        for to, of in overlap:
            weight[to] = theirs["weight"][of]
            if state is not None:
                state[to] = theirs["state"][of]
            if "noise" in theirs:
                noise[to] = theirs["noise"][of]
            loaded += len(range(len(ids))[to])
        if loaded == len(ids):
            return
    if loaded != len(ids):
        raise FormatError(f"{saved.path}: expected {len(ids)} rows of table {table.name!r}, found {loaded}")


def _load_copies(shards: TableShards, name: str, saved: SavedFiles, first: int) -> None:
    """Load the rows of which every rank has a copy; they were saved at their place in the table."""
    shards.take(name)
    ids_H, weight, state = shards.hot_rows(name)
    noise = shards.hot_noise(name)
    for shard in saved.shards_of(name, first) if len(ids_H) else ():
        place_H, between_H = np.divmod(ids_H - shard.ids.start, shard.ids.step)
        here = np.flatnonzero((between_H == 0) & (place_H >= 0) & (place_H < len(shard.ids)))
        if not len(here):
            continue
        theirs = shard.read()
        weight[here] = theirs["weight"][place_H[here]]
        if state is not None:
            state[here] = theirs["state"][place_H[here]]
        if "noise" in theirs:
            noise[here] = theirs["noise"][place_H[here]]


def _load_bounds(trainer: Trainer, saved: SavedFiles) -> None:
    """Load the scales that bounds are shares of; checkpoints of before there were any have none."""
    same = saved.ranks == trainer.ranks.count
    name = f"bounds-{trainer.ranks.rank if same else 0}-of-{saved.ranks}.pt"
    trainer.rows.load_bounds(saved.read(name) if name in saved else None, same_ranks=same)


def _load_held_back(trainer: Trainer, saved: SavedFiles) -> None:
    """Share out what ranks had held back: all of it is sent some day, by whoever is there."""
    if trainer.compressor is None:
        return
    ranks = trainer.ranks
    names = [f"held-{rank}-of-{saved.ranks}.pt" for rank in range(saved.ranks)]
    if not all(name in saved for name in names):
        if "gradient_step" in saved.manifest:  # otherwise it was trained with exact gradients
            state = {"step": saved.manifest["gradient_step"], "memory": {}, "thresholds": {}}
            trainer.compressor.load_state_dict(state)
        return
    mine = [saved.read(name) for name in names[ranks.rank :: ranks.count]]
    held = dict(mine[0]) if mine else {**saved.read(names[0]), "memory": {}, "squares": {}}
    for kind in ("memory", "squares"):
        for other in mine[1:]:
            held[kind] = _added(held.get(kind, {}), other.get(kind, {}))
    if saved.ranks != ranks.count:
        held = {key: value for key, value in held.items() if key not in ("rank", "ranks")}  # of nobody now
    trainer.compressor.load_state_dict(held)


def _added(ours: dict[str, Tensor], theirs: dict[str, Tensor]) -> dict[str, Tensor]:
    """Add what two ranks have of each parameter; one may have nothing."""
    return {**ours, **{name: ours[name] + x if name in ours else x for name, x in theirs.items()}}


def _overlap(mine: range, theirs: range) -> list[tuple[slice, slice]]:
    """Positions in two arithmetic sequences of ids where they have the same ids."""
    pieces = []
    for offset in range(min(theirs.step, len(mine))):  # mine[offset::theirs.step] is one residue of theirs
        first = mine[offset]
        if first not in theirs:
            continue  # sequences begin below their strides, so none of the residue's other ids is either
        at, step = theirs.index(first), mine.step  # ids advance by both strides: positions in theirs by mine
        count = min(len(range(offset, len(mine), theirs.step)), len(range(at, len(theirs), step)))
        pieces.append(
            (slice(offset, offset + count * theirs.step, theirs.step), slice(at, at + count * step, step))
        )
    return pieces


def _finished(folder: Path) -> list[Path]:
    return sorted(path.parent for path in folder.glob("step-*/manifest.json"))
