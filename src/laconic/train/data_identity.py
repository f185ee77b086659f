"""Which samples a run was trained on, and in which order, so that it is resumed on the same ones.

Where their files are does not matter, nor what is evaluated. Files are told apart by the number of
their samples and by their first ids: to read them all would take as long as an epoch.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Any

from laconic.data import DataSettings, Source
from laconic.errors import FormatError

__all__ = ["check_same_data", "data_identity"]

_NOT_TRAINED_ON = {"path", "columns", "eval_samples"}


def data_identity(settings: DataSettings, source: Source) -> dict[str, Any]:
    """Return it as JSON, a name for each value; of files, the first row group is read."""
    given = settings.model_dump(mode="json", exclude=_NOT_TRAINED_ON)
    found = {f"data.{name}": value for name, value in given.items()}
    found["training samples"] = source.samples_in("train")
    found["dense features"] = list(source.schema.dense)
    found["tables"] = [feature.name for feature in source.schema.categorical]
    if settings.kind == "parquet":
        found["first ids"] = _first_ids(source)
    return found


def check_same_data(where: str, saved: dict[str, Any] | None, mine: dict[str, Any]) -> None:
    """Raise ``FormatError`` if a checkpoint is of other data; older ones do not say of which."""
    for name, value in mine.items():
        if saved is not None and name in saved and saved[name] != value:
            raise FormatError(
                f"{where}: it was trained on other data: {name}: {saved[name]!r} there and {value!r} here; "
                "resume it on the data it was trained on, or choose another train.out"
            )


def _first_ids(source: Source) -> str:
    digest = blake2b(digest_size=8)
    for lookups in source.lookups_in_order("train"):
        digest.update(lookups.ids_L.numpy().tobytes())
        digest.update(lookups.offsets.numpy().tobytes())
        break
    return digest.hexdigest()
