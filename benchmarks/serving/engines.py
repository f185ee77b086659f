"""The models that are served, and the engines that serve them, one core each.

Models are trained for a short time, on real sets and on generated samples with ten million rows.
The engines are torch as it is, torch compiled, torchao, ONNX Runtime and Laconic.

Laconic serves models in the precisions that ``laconic quantize --budget 0.03%`` finds. NE should
change by at most 0.05 % on samples that the search does not have. These samples add noise, by
calculation 0.015 % for a combination that harms by 0.03 %, so the budget leaves a margin for it.

Rows of the large model that no training sample looked up still have their first values. They take
as much memory as others, and unseen samples look them up as often as they occur.

torch's engines and ONNX Runtime keep tables in float32, because their tools leave them so. A model
is compiled anew for every batch size. With ``fullgraph``, code that torch cannot compile is an
error. Shape legend: ``B`` samples, ``T`` tables, ``F`` dense features.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.timing import Times
from benchmarks.training.benchmark import TERABYTE
from laconic.data import DataSettings, Samples, Source, SyntheticSettings, open_source
from laconic.lookups import Lookups
from laconic.machine import has_vnni
from laconic.quantize.formats import Artifact, Features, ModelShape, TrainedModel
from laconic.quantize.formats.trained_model import linear_layers
from laconic.quantize.search.run import SearchSettings, measurement_file, search_run
from laconic.quantize.search.workbench import Workbench, make_workbench, select
from laconic.serve import Engine
from laconic.train.load_trained import trained_features
from laconic.train.metrics import Evaluation
from laconic.train.ranks import Ranks
from laconic.train.settings import ModelSettings, RunSettings, TrainSettings
from laconic.train.trainer import Trainer

BATCH = 256
"""Samples of a part: what is scored at once where throughput counts."""

GENERATED = SyntheticSettings(kind="synthetic", cap=20_000, samples=1 << 19, eval_samples=1 << 17)
_LARGE = SyntheticSettings(kind="synthetic", cap=1_600_000, eval_samples=1 << 18)
REFERENCE = SyntheticSettings(kind="synthetic", cap=245_000)  # a fifth of the rows
_LEARNING = TrainSettings(batch=1024, lr_warmup=50)
_SEARCH = SearchSettings(budget=0.0003, objective="size", probe=4096, batch=BATCH)
"""The command's settings with a smaller probe: three models are searched in a few minutes."""


Say = Callable[[str], None]


@dataclass(frozen=True, slots=True, eq=False)
class EngineBatch:
    """A batch as engines take it."""

    dense_BF: Tensor
    ids_TB: Tensor
    label_B: Tensor

    def first(self, batch: int) -> EngineBatch:
        """Return the first samples of it."""
        return EngineBatch(
            self.dense_BF[:batch].contiguous(),
            self.ids_TB[:, :batch].contiguous(),
            self.label_B[:batch].contiguous(),
        )


@dataclass(frozen=True, slots=True, eq=False)
class ServedModel:
    """A model, and batches that neither its training nor the search of precisions has seen."""

    name: str
    trained: TrainedModel
    batches: list[EngineBatch]
    artifact: Artifact | None = None
    """The model in the precisions that a search chose; None before it."""


def run_settings(data: DataSettings) -> RunSettings:
    """Say how a model of the usual size is trained."""
    return RunSettings(data=data, model=ModelSettings(dim=64), train=_LEARNING)


def large_settings() -> RunSettings:
    """Say the same of one with layers of a paper's size, and tables far larger than any cache."""
    return RunSettings(data=_LARGE, model=TERABYTE, train=_LEARNING)


def trained_case(
    name: str, settings: RunSettings, most: int | None, say: Say
) -> tuple[ServedModel, Workbench]:
    """Train for an epoch or ``most`` steps; half of the held-out samples are for a search."""
    say(f"{name}: opening data, drawing first weights")
    source = open_source(settings.data)
    trainer = Trainer(settings, source.schema, Ranks(0, 1))
    batch = settings.train.batch
    total = min(-(-source.samples_in("train") // batch), most or 1 << 40)
    batches = source.batches("train", global_batch=batch, rank=0, ranks=1, epoch=0, start=0)
    for step, samples in enumerate(islice(batches, total)):
        trainer.step(samples)
        say(f"{name}: training, step {step + 1} of {total}")
    features, vocabularies = trained_features(source)
    tables = {feature.name: trainer.rows.table_shard(feature.name)[1] for feature in features.tables}
    state = {key: value.clone() for key, value in trainer.model.state_dict().items()}
    trainer.embeddings.close()
    model = TrainedModel(_shape(settings, features), features, tables, state, vocabularies)
    parts: list[EngineBatch] = []
    bench = make_workbench(
        model,
        source,
        most=source.samples_in("eval") // 2,
        seed=0,
        progress=lambda what, done, total: say(f"{name}: {what}, {done} of {total}"),
        left=lambda samples: parts.extend(_cut(samples)),
    )
    return ServedModel(_title(name, source), model, parts), bench


def reference_case(parts: int, data: SyntheticSettings = REFERENCE) -> ServedModel:
    """Draw a model with the large one's layers and a fifth of its rows, without training it.

    A larger model is to replace it. Its accuracy means nothing.
    """
    settings = RunSettings(data=data, model=TERABYTE)
    source = open_source(data)
    features, _ = trained_features(source)
    generator = torch.Generator().manual_seed(0)
    tables = {
        feature.name: torch.empty(feature.rows, 64).normal_(0, 0.05, generator=generator)
        for feature in features.tables
    }
    torch.manual_seed(0)
    shape = _shape(settings, features)
    model = TrainedModel(shape, features, tables, shape.build().state_dict())
    evaluation = source.batches("eval", global_batch=BATCH, rank=0, ranks=1)
    batches = [part for samples in islice(evaluation, parts) for part in _cut(samples)]
    return ServedModel("reference", model, batches)


def _shape(settings: RunSettings, features: Features) -> ModelShape:
    return ModelShape(
        **settings.model.model_dump(),
        dense=len(features.dense),
        tables=len(features.tables),
        pooling=settings.embeddings.pooling,
    )


def _title(name: str, source: Source) -> str:
    rows = sum(source.schema.rows)
    return f"{name}, {rows / 1e6:.0f} M rows" if rows >= 10_000_000 else name


def _cut(samples: Samples) -> Iterator[EngineBatch]:
    """Cut samples with one id a table into parts; fewer than a part at the end are dropped."""
    for begin in range(0, len(samples) - BATCH + 1, BATCH):
        some = select(samples, torch.arange(begin, begin + BATCH))
        ids_TB = some.lookups.ids_L.view(some.lookups.tables, BATCH)
        yield EngineBatch(some.dense_BF.contiguous(), ids_TB, some.label_B)


def with_precisions(case: ServedModel, bench: Workbench, say: Say) -> ServedModel:
    """Search the precisions of a model on samples that the case does not have."""

    def tell(what: str, done: int, total: int) -> None:
        say(f"{case.name}: {what}, {done} of {total}")

    with TemporaryDirectory() as scratch:
        file = measurement_file(bench, _SEARCH, Path(scratch, "measured.jsonl"), fresh=True)
        return replace(case, artifact=search_run(bench, _SEARCH, file, tell).artifact)


Score = Callable[[EngineBatch], Tensor]


@dataclass(frozen=True, slots=True)
class LoadedEngine:
    """An engine with a model loaded."""

    name: str
    logits: Score
    """Logits of a batch, from ids and dense features."""
    size_bytes: int


@dataclass(frozen=True, slots=True)
class ServingRow:
    """Figures of one engine with one model and one batch size, on one core."""

    engine: str
    model: str
    batch: int
    samples_per_s: float
    """The batch over the median time of a call."""
    p50_ms: float
    p99_ms: float
    size_bytes: int
    """Bytes of tables and layers, as they are held in memory."""
    ne: float | None
    """Normalized entropy on samples that were not trained on; None where labels mean nothing."""
    auc: float | None

    @classmethod
    def of_times(
        cls,
        seconds: Times,
        *,
        engine: str,
        model: str,
        batch: int,
        size_bytes: int,
        found: Evaluation | None = None,
    ) -> ServingRow:
        """Take the time of every call, and how good scores are where labels mean something."""
        ne, auc = (found.normalized_entropy, found.auc) if found is not None else (None, None)
        median = float(np.median(seconds))
        p99 = float(np.quantile(seconds, 0.99))
        return cls(engine, model, batch, batch / median, median * 1e3, p99 * 1e3, size_bytes, ne, auc)


class _TorchModel(nn.Module):
    """Tables and dense part in one module, with one id for every table and sample."""

    def __init__(self, trained: TrainedModel) -> None:
        super().__init__()
        self.tables = nn.ParameterList(
            nn.Parameter(trained.tables[name][:], requires_grad=False)
            for name in trained.features.table_names
        )
        self.dense = trained.dense_model()

    def forward(self, dense_BF: Tensor, ids_TB: Tensor) -> Tensor:
        rows = [nn.functional.embedding(ids_TB[t], table) for t, table in enumerate(self.tables)]
        return self.dense(dense_BF, torch.stack(rows, dim=1))  # type: ignore[no-any-return]


def _torch_score(model: Callable[..., Tensor]) -> Score:
    def score(part: EngineBatch) -> Tensor:
        with torch.inference_mode():
            return model(part.dense_BF, part.ids_TB)

    return score


def _fp32(case: ServedModel) -> LoadedEngine:
    return LoadedEngine("fp32", _torch_score(_TorchModel(case.trained)), _fp32_bytes(case.trained))


def _compile(model: nn.Module) -> Callable[..., Tensor]:
    return torch.compile(model, dynamic=False, fullgraph=True)


def forget_compiled() -> None:
    """Let torch forget compiled models: it compiles one function for a few models only."""
    torch.compiler.reset()


def _compiled(case: ServedModel) -> LoadedEngine:
    model = _compile(_TorchModel(case.trained))
    return LoadedEngine("compile", _torch_score(model), _fp32_bytes(case.trained))


def _torchao(case: ServedModel) -> LoadedEngine:
    for talker in ("torchao", "torch.utils._pytree"):  # about each other's versions
        logging.getLogger(talker).setLevel(logging.ERROR)
    # Said while it is compiled, which is at the first batch.
    warnings.filterwarnings("ignore", "Int8Tensor does not implement")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from torchao.quantization import Int8DynamicActivationInt8WeightConfig, quantize_

        whole = _TorchModel(case.trained)
        quantize_(whole.dense, Int8DynamicActivationInt8WeightConfig())
    layers = _dense_bytes(case.trained) // 4  # one byte a weight; scales and biases are few
    return LoadedEngine("torchao", _torch_score(_compile(whole)), _table_bytes(case.trained) + layers)


def _onnxruntime(case: ServedModel) -> LoadedEngine:
    import onnxruntime

    proto = _int8_graph(case.trained)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(proto, options, providers=["CPUExecutionProvider"])
    binding = session.io_binding()
    for t, name in enumerate(case.trained.features.table_names):  # not copied; a protobuf holds 2 GB at most
        value = onnxruntime.OrtValue.ortvalue_from_numpy(case.trained.tables[name][:].numpy())
        binding.bind_ortvalue_input(f"table_{t}", value)

    def score(part: EngineBatch) -> Tensor:
        if part.dense_BF.shape[1]:
            binding.bind_cpu_input("dense", part.dense_BF.numpy())
        binding.bind_cpu_input("ids", part.ids_TB.numpy())
        binding.bind_output("logits")
        session.run_with_iobinding(binding)
        return torch.from_numpy(binding.copy_outputs_to_cpu()[0])

    return LoadedEngine("onnxruntime", score, _table_bytes(case.trained) + len(proto))


def _int8_graph(trained: TrainedModel) -> bytes:
    """Serialize a DLRM quantized by ONNX Runtime's own tool; tables and ids are inputs."""
    from onnx import TensorProto, helper, save
    from onnxruntime.quantization import QuantType, quantize_dynamic

    from laconic.serve.onnx_export import Graph, dlrm_graph

    graph, rows, tables = Graph(), [], []
    for t, table in enumerate(trained.features.tables):
        id_ = graph.node("Gather", ["ids", graph.constant(f"t{t}", np.array(t, np.int64))], f"id_{t}", axis=0)
        rows.append(graph.node("Gather", [f"table_{t}", id_], f"row_{t}", axis=0))
        tables.append(
            helper.make_tensor_value_info(f"table_{t}", TensorProto.FLOAT, [table.rows, trained.shape.dim])
        )
    layers = {
        name: (layer.weight.detach().numpy(), layer.bias.detach().numpy())
        for name, layer in linear_layers(trained.dense_model()).items()
    }
    model = dlrm_graph(graph, trained.shape, rows, layers, tables)
    logging.getLogger().setLevel(logging.ERROR)  # its tool advises on the root logger
    with TemporaryDirectory() as folder:
        plain, small = Path(folder, "fp32.onnx"), Path(folder, "int8.onnx")
        save(model, str(plain))
        quantize_dynamic(
            plain,
            small,
            per_channel=True,
            reduce_range=not has_vnni(),  # without, its sums of two products saturate, and scores are off
            weight_type=QuantType.QInt8,
            op_types_to_quantize=["MatMul"],
            nodes_to_exclude=["dots"],
        )
        return small.read_bytes()


def _laconic(case: ServedModel) -> LoadedEngine:
    assert case.artifact is not None, "with_precisions comes first"
    return engine_contender(case.artifact)


def engine_contender(artifact: Artifact) -> LoadedEngine:
    """Load an artifact into Laconic's engine."""
    engine = Engine(artifact)

    def score(part: EngineBatch) -> Tensor:
        lookups = Lookups.single(part.ids_TB)
        return torch.from_numpy(np.ascontiguousarray(engine.logits(part.dense_BF.numpy(), lookups)))

    return LoadedEngine("laconic", score, artifact.size_bytes)


ENGINES: Mapping[str, Callable[[ServedModel], LoadedEngine]] = {
    "fp32": _fp32,
    "compile": _compiled,
    "torchao": _torchao,
    "onnxruntime": _onnxruntime,
    "laconic": _laconic,
}
"""Functions that load a model into each engine, by name."""


def _table_bytes(trained: TrainedModel) -> int:
    return sum(4 * table.shape.numel() for table in trained.tables.values())


def _dense_bytes(trained: TrainedModel) -> int:
    return sum(4 * value.numel() for value in trained.state.values())


def _fp32_bytes(trained: TrainedModel) -> int:
    return _table_bytes(trained) + _dense_bytes(trained)
