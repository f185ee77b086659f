"""The artifact: a quantized model as a folder, which ``laconic quantize`` writes and engines serve.

::

    artifact.toml              version, model, features, recipe, metrics, population, files
    model.safetensors          tables.NAME, rows x bytes; layers.NAME.TENSOR
    shadow.safetensors         the same in fp32, where the artifact was written with it
    vocabularies.safetensors   raw values: values.NAME, or texts.NAME and offsets.NAME

Normative text: ``docs/formats/artifact.md``. A folder appears when everything is written, and is
never changed. ``artifact.toml`` has the size and the checksum of every other file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from hashlib import blake2b, file_digest
from pathlib import Path

import tomli_w
import torch
from pydantic import Field
from safetensors import SafetensorError, safe_open
from torch import Tensor

from laconic.config import Settings, parse
from laconic.data.hashing import Texts
from laconic.data.raw_source import Values
from laconic.errors import ConfigError, FormatError
from laconic.files import whole_folder
from laconic.quantize.formats.features import Features, Population, check_vocabulary
from laconic.quantize.formats.layers import tensor_shapes
from laconic.quantize.formats.recipe import Recipe
from laconic.quantize.formats.stored_tensors import StoredTensor, write_tensors
from laconic.quantize.formats.trained_model import ModelShape, TrainedModel, linear_layers

__all__ = ["Artifact", "read_artifact", "write_artifact"]

VERSION = 1
_DESCRIPTION, _MODEL, _SHADOW = "artifact.toml", "model.safetensors", "shadow.safetensors"
_DESCRIPTION_BEFORE = "artefact.toml"  # what it was called at first
_VOCABULARIES = "vocabularies.safetensors"


class _File(Settings):
    bytes: int = Field(ge=0)
    blake2b: str


class _Description(Settings):
    """``artifact.toml`` without its first line."""

    version: int
    model: ModelShape
    features: Features
    recipe: Recipe
    metrics: dict[str, float] = Field(default_factory=dict)
    population: Population | None = None
    files: dict[str, _File]


@dataclass(frozen=True, slots=True, eq=False)
class Artifact:
    """A quantized model in memory."""

    shape: ModelShape

    features: Features

    recipe: Recipe

    tables: dict[str, Tensor]
    """uint8, rows x bytes of a row in the table's format, by name."""

    layers: dict[str, dict[str, Tensor]]
    """Tensors of every layer, see ``quantize.formats.layers``, by name."""

    metrics: dict[str, float] = field(default_factory=dict)
    """Figures that were measured when it was made, as ``ne``, ``ne_fp32``, ``auc``."""

    population: Population | None = None
    """Distribution of the inputs when it was made."""

    vocabularies: dict[str, Values] = field(default_factory=dict)
    """Raw values of tables whose ``raw`` is "vocabulary", in the order of their ids, by name."""

    folder: Path | None = None
    """Folder from which it was read; None where it was not."""

    has_shadow: bool = False
    """Whether the folder also holds the model in fp32."""

    version: str = ""
    """Checksum of the folder's ``artifact.toml``; empty for an artifact that was never written."""

    @property
    def table_bytes(self) -> int:
        """Bytes of all tables as they are stored."""
        return sum(table.numel() for table in self.tables.values())

    @property
    def size_bytes(self) -> int:
        """Bytes of all tables and layers."""
        return self.table_bytes + sum(
            tensor.nbytes for layer in self.layers.values() for tensor in layer.values()
        )

    def read_shadow(self) -> Artifact:
        """Read the same model in fp32; ``ConfigError`` where the folder has none."""
        if self.folder is None or not self.has_shadow:
            raise ConfigError(
                f"{self.folder or 'artifact'}: it has no {_SHADOW}, the model in fp32; quantize again with a shadow"
            )
        description = _describe(self.folder)
        tensors = _read_tensors(self.folder / _SHADOW, description.files[_SHADOW])
        return _assemble(
            description, Recipe.uniform(self.recipe.tables, self.recipe.layers), tensors, self.folder, _SHADOW
        )


def write_artifact(folder: str | Path, artifact: Artifact, *, shadow: TrainedModel | None = None) -> None:
    """Write a new folder, whole or not at all; ``shadow`` is the model in fp32 that goes with it.

    ``ConfigError`` where the folder exists or cannot be written.
    """
    folder = Path(folder)
    if folder.exists():
        raise ConfigError(
            f"{folder}: it exists, and artifacts are never changed; choose another folder or remove it"
        )
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with whole_folder(folder) as partial:
            _write(partial, artifact, shadow)
    except (OSError, SafetensorError) as error:
        raise ConfigError(f"{folder}: the artifact cannot be written: {error}") from error


def read_artifact(folder: str | Path) -> Artifact:
    """Read and verify a folder, except for its shadow.

    ``FormatError`` for the first thing that is wrong.
    """
    folder = Path(folder)
    description = _describe(folder)
    if _MODEL not in description.files:
        raise FormatError(
            f"{folder / _DESCRIPTION}: files: expected {_MODEL}, got {', '.join(description.files)}"
        )
    tensors = _read_tensors(folder / _MODEL, description.files[_MODEL])
    artifact = _assemble(description, description.recipe, tensors, folder, _MODEL)
    version = blake2b(_description_path(folder).read_bytes(), digest_size=6).hexdigest()
    return replace(artifact, vocabularies=_read_vocabularies(description, folder), version=version)


def _write(folder: Path, artifact: Artifact, shadow: TrainedModel | None) -> None:
    tensors = {f"tables.{name}": StoredTensor.of(table) for name, table in artifact.tables.items()}
    for name, layer in artifact.layers.items():
        tensors |= {f"layers.{name}.{key}": StoredTensor.of(tensor) for key, tensor in layer.items()}
    files = {_MODEL: _write_tensors(folder / _MODEL, tensors)}
    if shadow is not None:
        files[_SHADOW] = _write_tensors(folder / _SHADOW, _shadow_tensors(artifact, shadow))
    if artifact.vocabularies:
        files[_VOCABULARIES] = _write_tensors(folder / _VOCABULARIES, _vocabulary_tensors(artifact))
    description = _Description(
        version=VERSION,
        model=artifact.shape,
        features=artifact.features,
        recipe=artifact.recipe,
        metrics=artifact.metrics,
        population=artifact.population,
        files=files,
    )
    text = tomli_w.dumps(description.model_dump(mode="json", exclude_none=True))
    (folder / _DESCRIPTION).write_text(f'blake2b = "{_digest(text.encode())}"\n{text}', encoding="utf-8")


def _shadow_tensors(artifact: Artifact, shadow: TrainedModel) -> dict[str, StoredTensor]:
    if shadow.shape != artifact.shape or shadow.features != artifact.features:
        raise ConfigError("artifact: the shadow is of another model; give the one that was quantized")
    tensors = {f"tables.{name}": StoredTensor.of_table(table) for name, table in shadow.tables.items()}
    for name, layer in linear_layers(shadow.dense_model()).items():
        tensors[f"layers.{name}.weight"] = StoredTensor.of(layer.weight)
        if layer.bias is not None:
            tensors[f"layers.{name}.bias"] = StoredTensor.of(layer.bias)
    return tensors


def _vocabulary_tensors(artifact: Artifact) -> dict[str, StoredTensor]:
    tensors = {}
    for table in artifact.features.tables:
        vocabulary = artifact.vocabularies.get(table.name)
        check_vocabulary(table, vocabulary)
        if isinstance(vocabulary, Texts):
            tensors[f"texts.{table.name}"] = StoredTensor.of_array(vocabulary.data, torch.uint8)
            tensors[f"offsets.{table.name}"] = StoredTensor.of_array(vocabulary.offsets, torch.int64)
        elif vocabulary is not None:
            tensors[f"values.{table.name}"] = StoredTensor.of_array(vocabulary, torch.int64)
    return tensors


def _read_vocabularies(description: _Description, folder: Path) -> dict[str, Values]:
    listed = [table for table in description.features.tables if table.raw == "vocabulary"]
    if not listed:
        return {}
    if _VOCABULARIES not in description.files:
        raise FormatError(
            f"{folder / _DESCRIPTION}: files: expected {_VOCABULARIES} for table {listed[0].name!r}, got "
            f"{', '.join(description.files)}"
        )
    where = folder / _VOCABULARIES
    left = _read_tensors(where, description.files[_VOCABULARIES])
    found: dict[str, Values] = {}
    for table in listed:
        if table.values == "text":
            offsets = _take(left, f"offsets.{table.name}", torch.int64, (table.rows,), where)
            steps = offsets.diff()
            if int(offsets[0]) != 0 or bool((steps < 0).any()):
                raise FormatError(f"{where}: expected 'offsets.{table.name}' to ascend from 0")
            text = _take(left, f"texts.{table.name}", torch.uint8, (int(offsets[-1]),), where)
            found[table.name] = Texts(text.numpy(), offsets.numpy())
        else:
            found[table.name] = _take(
                left, f"values.{table.name}", torch.int64, (table.rows - 1,), where
            ).numpy()
    if left:
        raise FormatError(f"{where}: tensor {min(left)!r} belongs to nothing that artifact.toml describes")
    return found


def _write_tensors(path: Path, tensors: Mapping[str, StoredTensor]) -> _File:
    checksum = write_tensors(path, tensors)
    return _File(bytes=path.stat().st_size, blake2b=checksum)


def _description_path(folder: Path) -> Path:
    before = folder / _DESCRIPTION_BEFORE
    return before if before.exists() and not (folder / _DESCRIPTION).exists() else folder / _DESCRIPTION


def _describe(folder: Path) -> _Description:
    path = _description_path(folder)
    try:
        first, _, text = path.read_bytes().partition(b"\n")
    except FileNotFoundError:
        raise ConfigError(
            f"{path}: no such file; expected the folder of an artifact, as laconic quantize writes it"
        ) from None
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None
    if first != f'blake2b = "{_digest(text)}"'.encode():
        raise FormatError(
            f"{path}: its checksum does not match its text; it is damaged or was edited, quantize again"
        )
    try:
        description = parse(text.decode(), _Description, where=str(path))
    except (ConfigError, UnicodeDecodeError) as error:
        raise FormatError(str(error)) from None
    if description.version != VERSION:
        raise FormatError(
            f"{path}: expected version {VERSION}, got {description.version}; use the laconic that wrote it"
        )
    return description


def _read_tensors(path: Path, expected: _File) -> dict[str, Tensor]:
    try:
        size = path.stat().st_size
        if size != expected.bytes:
            raise FormatError(
                f"{path}: expected {expected.bytes} bytes, got {size}; it is damaged, quantize again"
            )
        if _file_digest(path) != expected.blake2b:
            raise FormatError(
                f"{path}: its checksum does not match artifact.toml; it is damaged, quantize again"
            )
        with safe_open(path, framework="pt") as file:
            return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 -- it is no mapping
    except FileNotFoundError:
        raise FormatError(f"{path}: the file is missing; quantize again") from None
    except OSError as error:
        raise FormatError(f"{path}: cannot be read: {error.strerror or error}") from error
    except SafetensorError as error:
        raise FormatError(f"{path}: expected safetensors, got {error}") from error


def _assemble(
    description: _Description, recipe: Recipe, tensors: dict[str, Tensor], folder: Path, file: str
) -> Artifact:
    """Sort tensors into tables and layers.

    Every one must be there, of its type and shape, and no other.
    """
    shape, features, where = description.model, description.features, folder / file
    if (len(features.tables), len(features.dense)) != (shape.tables, shape.dense):
        raise FormatError(
            f"{folder / _DESCRIPTION}: features: expected {shape.tables} tables and {shape.dense} dense features, "
            f"got {len(features.tables)} and {len(features.dense)}"
        )
    try:
        modules = linear_layers(shape.build())
        recipe.check(features.table_names, modules)
        if description.population is not None:
            description.population.check(features)
    except ConfigError as error:
        raise FormatError(f"{folder / _DESCRIPTION}: {error}") from None
    left = dict(tensors)
    tables = {}
    for table in features.tables:
        width = recipe.tables[table.name].format.row_bytes(shape.dim)
        tables[table.name] = _take(left, f"tables.{table.name}", torch.uint8, (table.rows, width), where)
    layers = {}
    for name, module in modules.items():
        shapes = tensor_shapes(
            recipe.layers[name], module.out_features, module.in_features, bias=module.bias is not None
        )
        layers[name] = {
            key: _take(left, f"layers.{name}.{key}", kind, size, where)
            for key, (kind, size) in shapes.items()
        }
    if left:
        raise FormatError(f"{where}: tensor {min(left)!r} belongs to nothing that artifact.toml describes")
    return Artifact(
        shape=shape,
        features=features,
        recipe=recipe,
        tables=tables,
        layers=layers,
        metrics=description.metrics,
        population=description.population,
        folder=folder,
        has_shadow=_SHADOW in description.files,
    )


def _take(
    left: dict[str, Tensor], name: str, kind: torch.dtype, shape: tuple[int, ...], where: Path
) -> Tensor:
    tensor = left.pop(name, None)
    if tensor is None or tensor.dtype != kind or tuple(tensor.shape) != shape:
        got = "none" if tensor is None else f"{tensor.dtype} of shape {tuple(tensor.shape)}"
        raise FormatError(f"{where}: expected tensor {name!r} as {kind} of shape {shape}, got {got}")
    return tensor


def _digest(data: bytes) -> str:
    return blake2b(data, digest_size=16).hexdigest()


def _file_digest(path: Path) -> str:
    with path.open("rb") as file:
        return file_digest(file, lambda: blake2b(digest_size=16)).hexdigest()
