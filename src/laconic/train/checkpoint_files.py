"""Files of a checkpoint: hashed as they are written, verified before they are used.

A file is read through memory: what nobody asks for stays on the disk. To verify it means to read
all of it, so whoever needs some files of a checkpoint verifies those alone.
"""

from __future__ import annotations

import json
import os
import pickle
from collections.abc import Callable, Iterator
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import IO, Any, NamedTuple, cast

import torch

from laconic.errors import FormatError

__all__ = ["VERSION", "SavedFiles", "SavedShard", "sync_folder", "write_file"]

VERSION = 1


class SavedShard(NamedTuple):
    """Rows of a table that a rank saved."""

    ids: range
    read: Callable[[], dict[str, Any]]
    """Verifies the file, and returns weight, and state and noise where there are any."""


class SavedFiles:
    """The files of a checkpoint, of which each is verified before it is used, and once."""

    def __init__(self, path: Path) -> None:
        self.path, self.manifest = path, _manifest(path / "manifest.json")
        self.ranks: int = self.manifest["ranks"]
        self._read: dict[str, Any] = {}
        self._verified: set[str] = set()
        for name in self.manifest["files"]:
            if not (path / name).is_file():
                raise FormatError(
                    f"{path / name}: the file is missing; remove this folder, an older one is used then"
                )

    def __contains__(self, name: str) -> bool:
        return name in self.manifest["files"]

    def read(self, name: str) -> Any:
        """Return what is in a file; tensors are in the file until they are used."""
        self._verify(name)
        return self._map(name)

    def tables(self, rank: int) -> dict[str, dict[str, Any]]:
        """Return the shards that a rank saved."""
        found: dict[str, dict[str, Any]] = self.read(self.tables_of(rank))
        return found

    def shards_of(self, table: str, first: int) -> Iterator[SavedShard]:
        """Yield the shards of a table, that of rank ``first`` before all others."""
        for rank in [first % self.ranks, *(r for r in range(self.ranks) if r != first % self.ranks)]:
            name = self.tables_of(rank)
            if table in (shards := self._map(name)):
                yield SavedShard(_ids_of(shards[table]), partial(self._verified_shard, name, table))

    def _verified_shard(self, name: str, table: str) -> dict[str, Any]:
        shard: dict[str, Any] = self.read(name)[table]
        return shard

    def _map(self, name: str) -> Any:
        if name not in self._read:
            try:
                self._read[name] = _read(self.path / name)
            except FormatError:
                self._verify(name)  # raises where the file is another than the one that was written
                raise
        return self._read[name]

    def tables_of(self, rank: int) -> str:
        """Return the name of the file with the rows that a rank saved."""
        return f"tables-{rank}-of-{self.ranks}.pt"

    def _verify(self, name: str) -> None:
        if name in self._verified:
            return
        if name not in self:
            raise FormatError(f"{self.path / 'manifest.json'}: expected the checksum of {name!r}, got none")
        if _checksum(self.path / name) != self.manifest["files"][name]:
            raise FormatError(
                f"{self.path / name}: its checksum does not match the manifest; "
                "remove this folder, an older one is used then"
            )
        self._verified.add(name)


def _ids_of(part: dict[str, Any]) -> range:
    return range(part["first"], part["first"] + part["stride"] * len(part["weight"]), part["stride"])


def _manifest(path: Path) -> dict[str, Any]:
    try:
        manifest = json.loads(path.read_text())
        version = manifest["version"]
    except (ValueError, KeyError, TypeError) as error:
        raise FormatError(f"{path}: expected the manifest of a checkpoint, got {error}") from error
    if version != VERSION:
        raise FormatError(f"{path}: expected checkpoint version {VERSION}, got {version!r}")
    missing = {"ranks", "position", "kind", "files"} - set(manifest)
    if missing:
        raise FormatError(f"{path}: expected {min(missing)!r} in the manifest, got none")
    return manifest  # type: ignore[no-any-return]


def _read(path: Path) -> Any:
    try:
        return torch.load(path, weights_only=True, mmap=True)
    except (RuntimeError, ValueError, KeyError, EOFError, pickle.UnpicklingError) as error:
        raise FormatError(f"{path}: torch cannot read it: {str(error).splitlines()[0]}") from error


class _Digested:
    """A file that is hashed as it is written."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file, self.digest = file, _digest()

    def write(self, data: bytes) -> int:
        """Write, and hash."""
        self.digest.update(data)
        return self._file.write(data)

    def flush(self) -> None:
        """Hand everything to the operating system."""
        self._file.flush()


def write_file(path: Path, value: Any) -> str:
    """Write a value as torch does; return the checksum."""
    with path.open("wb") as file:
        digested = _Digested(file)
        try:
            torch.save(value, cast(IO[bytes], digested))
        except RuntimeError as error:  # torch closes its archive after a failed write, and fails again
            if isinstance(error.__context__, OSError):
                raise error.__context__ from error
            raise
        file.flush()
        os.fsync(file.fileno())
    return digested.digest.hexdigest()


def _digest() -> blake2b:
    return blake2b(digest_size=16)


def _checksum(path: Path) -> str:
    digest = _digest()
    with path.open("rb") as file:
        while piece := file.read(1 << 22):
            digest.update(piece)
    return digest.hexdigest()


def sync_folder(folder: Path) -> None:
    """Make what happened in a folder last."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
