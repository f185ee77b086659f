"""The newest checkpoint of a run as one model: shards of all ranks, put together.

Rows of tables stay in the files until they are asked for.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from laconic.config import parse_json
from laconic.data import Source, open_source
from laconic.data.raw_source import RawCategories, RawSource, Values
from laconic.errors import ConfigError, FormatError
from laconic.quantize.formats import DenseFeature, Features, ModelShape, TableFeature, TrainedModel
from laconic.train.checkpoint import newest_checkpoint
from laconic.train.checkpoint_files import SavedFiles
from laconic.train.saved_tables import SavedPart, SavedTable, saved_parts
from laconic.train.settings import RunSettings

__all__ = ["load_trained", "run_settings", "trained_features"]


def load_trained(run: str | Path, settings: RunSettings | None = None) -> TrainedModel:
    """Read a run's folder (``train.out``).

    The settings are those that the run wrote down, or the given ones. The data must be where the
    run found it: it says what the features are.
    """
    run = Path(run)
    settings = settings or run_settings(run)
    path = newest_checkpoint(run / "checkpoints")
    if path is None:
        raise ConfigError(f"{run}: no checkpoint in it; train with train.out = {str(run)!r} first")
    features, vocabularies = trained_features(open_source(settings.data))
    saved = SavedFiles(path)
    dense, parts = saved.read("dense.pt"), saved_parts(saved)
    model = settings.model
    shape = ModelShape(
        **model.model_dump(),
        dense=len(features.dense),
        tables=len(features.tables),
        pooling=settings.embeddings.pooling,
    )
    tables = {
        table.name: _assemble(path, table, model.dim, parts.get(table.name, [])) for table in features.tables
    }
    trained = TrainedModel(
        shape, features, tables, {name: value.clone() for name, value in dense["model"].items()}, vocabularies
    )
    trained.dense_model()  # raises where the weights are of another model
    return trained


def trained_features(source: Source) -> tuple[Features, dict[str, Values]]:
    """Describe a source's features, how raw values become them, and the vocabularies for it."""
    schema = source.schema
    dense = tuple(DenseFeature(name=name) for name in schema.dense)
    tables = tuple(TableFeature(name=t.name, rows=t.rows, bag=t.bag) for t in schema.categorical)
    if not isinstance(source, RawSource):
        return Features(dense=dense, tables=tables), {}
    raw = source.raw_values()
    if raw.dense is not None:
        dense = tuple(
            DenseFeature(name=d.column, log1p=d.log1p, mean=d.mean, deviation=d.deviation) for d in raw.dense
        )
    tables = tuple(
        table.model_copy(update={"unknown": True, **_how(raw.categories.get(table.name))}) for table in tables
    )
    vocabularies = {
        name: values.vocabulary for name, values in raw.categories.items() if values.vocabulary is not None
    }
    return Features(raw="unknown" if raw.dense is None else None, dense=dense, tables=tables), vocabularies


def _how(raw: RawCategories | None) -> dict[str, str]:
    if raw is None:
        return {}
    return {"raw": "hash" if raw.vocabulary is None else "vocabulary", "values": raw.values}


def run_settings(run: Path) -> RunSettings:
    """Read the settings that a run wrote down, but for what traveled as what.

    That does not matter to the model, and older runs may have used what is gone by now.
    """
    path = run / "settings.json"
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(
            f"{path}: cannot be read ({error.strerror}); expected the folder of a run, train.out"
        ) from None
    return parse_json(text, RunSettings, where=str(path), translate=_without_compression)


def _without_compression(tree: dict[str, Any]) -> dict[str, Any]:
    """Leave out the words of compression, and give learning rates the names of today."""
    kept = {name: part for name, part in tree.items() if name not in ("compression", "exchange", "policy")}
    for part, old, new in (
        ("embeddings", "rate", "lr"),
        ("dense", "rate", "lr"),
        ("train", "rate_warmup", "lr_warmup"),
    ):
        if isinstance(kept.get(part), dict):
            kept[part] = {new if name == old else name: value for name, value in kept[part].items()}
    if isinstance(kept.get("data"), dict):
        kept["data"] = {name: value for name, value in kept["data"].items() if name != "window_rows"}
    if isinstance(kept.get("dense"), dict):
        kept["dense"] = {name: kept["dense"][name] for name in ("optimizer", "lr") if name in kept["dense"]}
    return kept


def _assemble(path: Path, table: TableFeature, dim: int, parts: list[SavedPart]) -> SavedTable:
    """Put the parts of a table together; ``FormatError`` unless they have every row once."""
    for part in parts:
        ids = (
            range(table.rows)[part.first :: part.stride] if part.first >= 0 and part.stride > 0 else range(0)
        )
        if (part.rows, part.dim) != (len(ids), dim):
            raise FormatError(
                f"{path}: table {table.name!r}: expected {len(ids)} rows of {dim} from row {part.first} on in steps of "
                f"{part.stride}, got shape {(part.rows, part.dim)}; was it trained on other data?"
            )
    if (found := sum(part.rows for part in parts)) != table.rows:
        raise FormatError(f"{path}: expected {table.rows} rows of table {table.name!r}, found {found}")
    return SavedTable(table.name, table.rows, dim, tuple(parts))
