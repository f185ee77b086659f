"""``python -m benchmarks NAME``, from the root of a checkout. Commands import what is heavy."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from laconic.cli import run
from laconic.cli.output import JsonFile, check_outputs, console_for, write_json

if TYPE_CHECKING:
    pass

app = typer.Typer(
    help="Measure Laconic against what you would pick instead.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

_DATA = typer.Option(
    None, help="Folder of Parquet files with columns label, c_*, d_*; left out: generated samples."
)


class _Output:
    """Where the results of a benchmark go: tables to the console, and rows to a file."""

    def __init__(self, json_file: Path | None, width: int) -> None:
        """Refuse a file that cannot be written; ``width``: columns that tables need at least."""
        from benchmarks.harness import Machine

        check_outputs(json=json_file)
        self._file, self.console = json_file, console_for(json_file)
        self.console.width = max(self.console.width, width)
        self.console.print(str(Machine.this()))

    @contextmanager
    def status(self) -> Iterator[Callable[[str], None]]:
        """Give a function that is told what is being done."""
        with self.console.status("starting") as status:
            yield status.update

    def show(self, tables: Any, rows: Iterable[Any]) -> None:
        """Print tables, and write rows where that was asked for."""
        self.console.print(tables)
        write_json([row if isinstance(row, dict) else asdict(row) for row in rows], self._file)


@app.callback()
def _group() -> None:
    """Measure Laconic against what you would pick instead."""


@app.command("codecs")
def codecs(
    data: Path | None = typer.Option(
        None, help="Folder of dumps NAME_ROWSxDIM.f32 (raw float32) to measure beside the generated ones."
    ),
    json_file: JsonFile = None,
    repeats: int = typer.Option(7, min=1, help="Best of this many interleaved runs."),
    quick: bool = typer.Option(False, help="A smaller random table and fewer runs: half a minute."),
) -> None:
    """Ratio, speed and error of every codec, one thread, interleaved in one process."""
    from benchmarks.codecs.benchmark import render, run_codec_benchmark

    out = _Output(json_file, 120)
    with out.status() as say:
        results = run_codec_benchmark(data=data, repeats=repeats, quick=quick, say=say)
    out.show(render(results), [record for result in results for record in result.records()])


@app.command("train")
def train(
    data: Path | None = _DATA,
    rates: str = typer.Option(
        "1000",
        "--mbps",
        help="Bandwidths of the links to time at, in Mbit/s, separated by commas; the matched one comes first.",
    ),
    hosts: int | None = typer.Option(None, min=2, help="Hosts to time on; left out: one for each core."),
    seeds: int = typer.Option(1, min=1, help="Paired runs for accuracy."),
    full: bool = typer.Option(
        False, help="More rounds, whole epochs, every method and data set: an hour or two."
    ),
    json_file: JsonFile = None,
) -> None:
    """Step time, bytes and accuracy of training, against other methods, on real links."""
    from benchmarks.training.benchmark import render, run_training_benchmark

    rates_mbit, out = _rates(rates), _Output(json_file, 110)
    with out.status() as say:
        result = run_training_benchmark(
            data=data, rates_mbit=rates_mbit, hosts=hosts, seeds=seeds, full=full, say=say
        )
    out.show(render(result), result.rows)


@app.command("switch")
def switch(
    rates: str = typer.Option(
        "200,1000", "--mbps", help="Bandwidths of the links, in Mbit/s, separated by commas."
    ),
    hosts: int = typer.Option(4, min=2, max=32, help="Number of hosts."),
    values: int = typer.Option(4_000_000, min=1, help="Integers of 32 bits that each host contributes."),
    rounds: int = typer.Option(5, min=1, help="Sums of every run; the fastest counts."),
    turns: int = typer.Option(2, min=1, help="Runs of every method, in turn."),
    json_file: JsonFile = None,
) -> None:
    """Sum of integers by a switch, in the kernel and in user space, against gloo's ring."""
    from benchmarks.switch import render, run_switch_benchmark

    rates_mbit, out = _rates(rates), _Output(json_file, 80)
    with out.status() as say:
        rows = run_switch_benchmark(
            rates_mbit=rates_mbit, hosts=hosts, values=values, rounds=rounds, turns=turns, say=say
        )
    out.show(render(rows), rows)


@app.command("adapt")
def adapt(
    data: Path | None = _DATA,
    seeds: int | None = typer.Option(None, min=1, help="Paired runs; left out: 2, or 5 with --full."),
    rates: str = typer.Option(
        "200,loopback",
        "--mbps",
        help="Links to time at, in Mbit/s or loopback, separated by commas; empty: none.",
    ),
    full: bool = typer.Option(False, help="All bounds, budgets and decays: an hour or two."),
    json_file: JsonFile = None,
) -> None:
    """Bounds by table and step, guard and economy: accuracy, bytes and time against SC'24's."""
    from benchmarks.adaptation.benchmark import render, run_adaptation_benchmark

    rates_mbit = [None if rate == "loopback" else rate for rate in _rates(rates, "loopback")]
    out = _Output(json_file, 120)
    with out.status() as say:
        result = run_adaptation_benchmark(data=data, seeds=seeds, rates_mbit=rates_mbit, full=full, say=say)
    out.show(render(result), result.all_rows())


@app.command("accuracy")
def accuracy(
    data: Path | None = _DATA,
    pairs: int = typer.Option(10, min=1, help="Pairs of each policy and data set."),
    policies: str = typer.Option(
        "default,auto,tuned",
        help="What is compared with exact runs, separated by commas; also levels, large, and bad: ten bad ones.",
    ),
    optimizer: str = typer.Option("adagrad", help="What trains the dense part: adagrad or adam."),
    json_file: Path | None = typer.Option(
        None,
        "--json",
        metavar="FILE",
        help="A line of JSON is appended for each pair; pairs that the file has are not run again.",
    ),
) -> None:
    """Log loss and AUC of compressed runs against paired exact ones; an hour in all."""
    from benchmarks.accuracy.benchmark import render, run_accuracy_benchmark

    names = [name.strip() for name in policies.split(",") if name.strip()]
    out = _Output(None, 150)
    with out.status() as say:
        rows = run_accuracy_benchmark(
            data=data, pairs=pairs, policies=names, file=json_file, say=say, optimizer=optimizer
        )
    out.console.print(render(rows))


@app.command("scale")
def scale(
    real: str = typer.Option("2,8", help="Numbers of real ranks on this machine, separated by commas."),
    echoed: str = typer.Option(
        "32,128,512", help="Numbers of ranks of which one is real, and its wire echoes what it sends."
    ),
    tables: int = typer.Option(26, min=1, help="Number of tables."),
    batch: int = typer.Option(1024, min=1, help="Samples a rank."),
    replicate_below: int = typer.Option(0, min=0, help="Tables of fewer rows are on every rank."),
    json_file: JsonFile = None,
) -> None:
    """Bytes, announcements, CPU, descriptors and memory of a rank as ranks become many."""
    from benchmarks.scale import render, run_scale_benchmark

    counts = {name: _counts(name, text) for name, text in (("real", real), ("echoed", echoed))}
    out = _Output(json_file, 130)
    with out.status() as say:
        rows = run_scale_benchmark(
            real=counts["real"],
            echoed=counts["echoed"],
            tables=tables,
            batch=batch,
            replicate_below=replicate_below,
            say=say,
        )
    out.show(render(rows), [row.model_dump() for row in rows])


@app.command("read")
def read(
    rows: int = typer.Option(1 << 21, min=64, help="Samples, in 16 files."),
    row_group: int = typer.Option(65536, min=1, help="Samples of a row group."),
    batch: int = typer.Option(8192, min=1, help="Samples of a global batch."),
    compression: str = typer.Option("zstd", help="Codec of the files: zstd, snappy or none."),
    repeats: int = typer.Option(5, min=1, help="Turns; medians count."),
    json_file: JsonFile = None,
) -> None:
    """Bytes and CPU time of reading Parquet on 1, 2, 4 and 8 ranks, against plain PyArrow."""
    from benchmarks.reading import render, run_reading_benchmark

    out = _Output(json_file, 100)
    with out.status() as say:
        readings = run_reading_benchmark(
            rows=rows, row_group=row_group, batch=batch, compression=compression, repeats=repeats, say=say
        )
    out.show(render(readings), readings)


@app.command("lookups")
def lookups(
    dims: str = typer.Option("16,64", help="Dimensions of rows, separated by commas."),
    batch: int = typer.Option(2048, min=1, help="Samples of a batch."),
    repeats: int = typer.Option(7, min=1, help="Turns of 8 steps; medians count."),
    json_file: JsonFile = None,
) -> None:
    """CPU time of a lookup on one rank, against FBGEMM's operator and EmbeddingBag."""
    from benchmarks.lookups import render, run_lookup_benchmark

    out = _Output(json_file, 100)
    with out.status() as say:
        times = run_lookup_benchmark(dims=_counts("dims", dims), batch=batch, repeats=repeats, say=say)
    out.show(render(times), times)


@app.command("sets")
def sets(
    out: Path = typer.Option(Path("public-sets"), help="Folder to write to."),
) -> None:
    """Write two public data sets as Parquet files, for --data of the others; needs PyPI."""
    from benchmarks.public_sets import write_public_sets

    for file in write_public_sets(out):
        typer.echo(file)


@app.command("placement")
def placement(
    data: Path | None = typer.Option(
        None, help="Folder of Parquet files with columns label, c_*, d_*; left out: generated samples alone."
    ),
    full: bool = typer.Option(False, help="Many more repeats: half an hour."),
    json_file: JsonFile = None,
) -> None:
    """Predicted against measured bytes and time, and plans against those of others."""
    from benchmarks.placement.benchmark import render, run_placement_benchmark

    out = _Output(json_file, 110)
    with out.status() as say:
        rows = run_placement_benchmark(data, full=full, say=say)
    out.show(render(rows), rows)


@app.command("reduce")
def reduce(
    hosts: int = typer.Option(2, min=2, help="Hosts to time on; cores should suffice for a core each."),
    rate: float = typer.Option(1000, "--mbps", min=1, help="Bandwidth of the links, in Mbit/s."),
    data: Path | None = typer.Option(
        None, help="Folder with book_crossing.parquet, for the NCF model; left out: generated ids."
    ),
    full: bool = typer.Option(False, help="Three times as many repeats: half an hour."),
    json_file: JsonFile = None,
    words: int = typer.Option(1 << 24, min=1, hidden=True),
) -> None:
    """Time, bytes and exactness of sums: gloo, torch's hooks, top-k and Laconic, on real links."""
    from benchmarks.reduction.benchmark import render, run_reduction_benchmark, usual_plan

    plan, out = usual_plan(data, full=full, words=words), _Output(json_file, 120)
    with out.status() as say:
        rows = run_reduction_benchmark(plan, hosts=hosts, rate_mbit=rate, say=say)
    out.show(render(rows), rows)


@app.command("hybrid")
def hybrid(
    rate: float | None = typer.Option(
        None,
        "--mbps",
        min=1,
        help="Bandwidth of the links, in Mbit/s; left out: where plain communicates for 60 % of a step.",
    ),
    full: bool = typer.Option(False, help="Three times as many rounds: a quarter of an hour."),
    json_file: JsonFile = None,
) -> None:
    """Step time of a divided and replicated DLRM with thresholds on what its MLPs send."""
    from benchmarks.hybrid import render, run_hybrid_benchmark, usual_plans

    plans, out = usual_plans(full=full), _Output(json_file, 120)
    with out.status() as say:
        rows = run_hybrid_benchmark(plans, rate_mbit=rate, say=say)
    out.show(render(rows), rows)


@app.command("serve")
def serve(
    data: Path | None = _DATA,
    engines: str = typer.Option(
        "fp32,compile,torchao,onnxruntime,laconic", help="Engines to measure, separated by commas."
    ),
    full: bool = typer.Option(
        False, help="Whole epochs of training, batch 64 too, more rounds: half an hour."
    ),
    json_file: JsonFile = None,
) -> None:
    """Throughput, latency, size and accuracy of served models, against other engines."""
    from benchmarks.serving.benchmark import render, run_serving_benchmark
    from benchmarks.serving.engines import ENGINES
    from laconic.errors import ConfigError

    names = [name.strip() for name in engines.split(",") if name.strip()]
    unknown = [name for name in names if name not in ENGINES]
    if unknown or not names:
        raise ConfigError(f"--engines: expected some of {', '.join(ENGINES)}, got {engines!r}")
    out = _Output(json_file, 120)
    with out.status() as say:
        result = run_serving_benchmark(data=data, full=full, engines=names, say=say)
    out.show(render(result), result.all_rows())


def _rates(text: str, *words: str) -> list[Any]:
    """Read rates, in Mbit/s, and words that may stand for one."""
    from laconic.errors import ConfigError

    parts = [part.strip() for part in text.split(",") if part.strip()]
    try:
        return [part if part in words else float(part) for part in parts]
    except ValueError as error:
        allowed = " or ".join(("numbers", *words)) + ("," if words else "")
        raise ConfigError(f"--mbps: expected {allowed} separated by commas, got {text!r}") from error


def _counts(name: str, text: str) -> list[int]:
    """Read numbers of ranks."""
    from laconic.errors import ConfigError

    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not all(part.isdecimal() and int(part) >= 2 for part in parts):
        raise ConfigError(f"--{name}: expected numbers from 2 on, separated by commas, got {text!r}")
    return [int(part) for part in parts]


if __name__ == "__main__":
    run(app)
