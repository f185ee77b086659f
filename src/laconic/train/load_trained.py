"""The newest checkpoint of a run as one model: shards of all ranks put together, for quantisation."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from laconic.config import parse_json
from laconic.data import ParquetSettings, Source, open_source
from laconic.errors import ConfigError, FormatError
from laconic.quant import DenseFeature, Features, ModelShape, TableFeature, TrainedModel
from laconic.train.checkpoint import newest_checkpoint, read_checkpoint
from laconic.train.settings import RunSettings

__all__ = ["load_trained", "trained_features"]


def load_trained(run: str | Path, settings: RunSettings | None = None) -> TrainedModel:
    """Read a run's folder (``train.out``); its settings are those that the run wrote down, or the given ones.

    The data must be where the run found it: it says what the features are.
    """
    run = Path(run)
    settings = settings or _settings(run)
    path = newest_checkpoint(run / "checkpoints")
    if path is None:
        raise ConfigError(f"{run}: no checkpoint in it; train with train.out = {str(run)!r} first")
    features = trained_features(settings, open_source(settings.data))
    dense, shards = read_checkpoint(path)
    model = settings.model
    shape = ModelShape(
        **model.model_dump(),
        dense=len(features.dense),
        tables=len(features.tables),
        pooling=settings.embeddings.pooling,
    )
    tables = {table.name: _assemble(path, table, model.dim, shards) for table in features.tables}
    trained = TrainedModel(
        shape, features, tables, {name: value.clone() for name, value in dense["model"].items()}
    )
    trained.dense_part()  # raises where the weights are of another model
    return trained


def trained_features(settings: RunSettings, source: Source) -> Features:
    """Describe the features of a source: transforms, rows, whether the last row is for unknown ids."""
    schema = source.schema
    files = isinstance(settings.data, ParquetSettings)
    transforms = {dense.column: dense for dense in getattr(source, "dense", ())}
    dense = []
    for name in schema.dense:
        known = transforms.get(name)
        dense.append(
            DenseFeature(name=name)
            if known is None
            else DenseFeature(name=name, log1p=known.log1p, mean=known.mean, deviation=known.deviation)
        )
    tables = [
        TableFeature(name=table.name, rows=table.rows, bag=table.bag, unknown=files)
        for table in schema.categorical
    ]
    return Features(dense=tuple(dense), tables=tuple(tables))


def _settings(run: Path) -> RunSettings:
    path = run / "settings.json"
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(
            f"{path}: can not be read ({error.strerror}); expected the folder of a run, train.out"
        ) from None
    return parse_json(text, RunSettings, where=str(path))


def _assemble(
    path: Path, table: TableFeature, dim: int, shards: list[dict[str, dict[str, Tensor]]]
) -> Tensor:
    rows_RD = torch.empty(table.rows, dim)
    filled = 0
    for shard in shards:
        part = shard.get(table.name)
        if part is None:
            continue
        first, stride, weight = int(part["first"]), int(part["stride"]), part["weight"]
        ids = range(table.rows)[first::stride] if first >= 0 and stride > 0 else range(0)
        if tuple(weight.shape) != (len(ids), dim):
            raise FormatError(
                f"{path}: table {table.name!r}: expected {len(ids)} rows of {dim} from row {first} on in steps of "
                f"{stride}, got shape {tuple(weight.shape)}; was it trained on other data?"
            )
        rows_RD[first::stride] = weight
        filled += len(ids)
    if filled != table.rows:
        raise FormatError(f"{path}: expected {table.rows} rows of table {table.name!r}, found {filled}")
    return rows_RD
