"""The settings of a training run: one TOML file, one class for each of its tables."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from laconic.adapt.exchange_words import MOVED
from laconic.adapt.settings import CompressionSettings
from laconic.config import Settings
from laconic.data import DataSettings

__all__ = [
    "DenseSettings",
    "EmbeddingSettings",
    "ModelSettings",
    "RunSettings",
    "TrainSettings",
]

Size = Annotated[int, Field(ge=1)]


class ModelSettings(Settings):
    """The dense part of the model."""

    kind: Literal["dlrm", "dcn_v2"] = "dlrm"
    """``dlrm``: dot products of pairs; ``dcn_v2``: cross network."""

    dim: int = Field(default=16, ge=1)
    """Dimensions of every embedding."""

    bottom: tuple[Size, ...] = (512, 256)
    """Layers over the dense features; DLRM adds one of size ``dim``."""

    top: tuple[Size, ...] = (512, 256)
    """Layers over the interactions; one of size 1 is added."""

    cross: int = Field(default=3, ge=1)
    """Cross layers of DCN-v2."""


class EmbeddingSettings(Settings):
    """Where tables are and how they are trained."""

    sharding: Literal["table", "row"] = "row"
    """``row`` spreads every table's rows over all ranks; ``table`` puts whole tables on ranks."""

    send: Literal["rows", "pooled"] = "rows"
    """``rows``: distinct rows once per destination; ``pooled``: one vector per sample, as DLRM
    does."""

    pooling: Literal["sum", "mean"] = "sum"
    """How the rows of a bag become one vector."""

    replicate_below: int = Field(default=0, ge=0)
    """Tables with fewer rows than this are kept on every rank."""

    optimizer: Literal["adagrad", "sgd"] = "adagrad"
    """Row-wise Adagrad, or plain SGD."""

    lr: float = Field(default=0.02, ge=0)
    """Learning rate."""

    cold_folder: Path | None = None
    """Folder for the rows of tables that a plan calls cold, best on a disk of the rank's own; left
    out: ``cold`` in ``train.out``."""


class DenseSettings(Settings):
    """How the dense part is trained."""

    optimizer: Literal["adagrad", "sgd", "adam"] = "adagrad"
    """From ``torch.optim``."""

    lr: float = Field(default=0.02, ge=0)
    """Learning rate."""


class TrainSettings(Settings):
    """The loop."""

    batch: int = Field(default=1024, ge=1)
    """Samples per rank and step; the global batch is this times the number of ranks."""

    epochs: int | None = Field(default=None, ge=1)
    """Passes over the training samples; left out: as many as ``steps`` needs, or one."""

    steps: int | None = Field(default=None, ge=1)
    """Number of steps after which the run ends, unless ``epochs`` end it before; left out: the
    epochs end it."""

    seed: int = Field(default=0, ge=0, lt=2**20)
    """Of the first weights. Data has a seed of its own."""

    lr_warmup: int = Field(default=0, ge=0)
    """Number of steps over which learning rates rise to their values: the first steps of Adagrad
    are its largest."""

    eval_every: int = Field(default=0, ge=0)
    """Evaluate every so many steps; 0: only at the end."""

    eval_batch: int = Field(default=4096, ge=1)
    """Samples per rank and step of evaluation."""

    log_every: int = Field(default=20, ge=1)
    """Write metrics every so many steps."""

    checkpoint_every: int = Field(default=0, ge=0)
    """Save every so many steps; 0: only at the end."""

    keep_checkpoints: int = Field(default=2, ge=1)
    """Older ones are removed."""

    out: Path = Path("run")
    """Folder of metrics and checkpoints, on a file system that all ranks share."""

    timeout_s: float = Field(default=20, gt=0)
    """A rank that does not answer for so long is taken for dead."""

    tensorboard: bool = False
    """Also write TensorBoard event files (needs the tensorboard package)."""


class RunSettings(Settings):
    """All of a run."""

    moved: ClassVar[Mapping[str, str]] = {**MOVED, "data.window_rows": "is data.held_rows now"}

    data: DataSettings
    model: ModelSettings = ModelSettings()
    embeddings: EmbeddingSettings = EmbeddingSettings()
    dense: DenseSettings = DenseSettings()
    compression: CompressionSettings = CompressionSettings()
    train: TrainSettings = TrainSettings()
