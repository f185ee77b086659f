"""``python -m benchmarks NAME``, from the root of a checkout. Heavy imports stay inside commands."""

from __future__ import annotations

from pathlib import Path

import typer

from laconic.cli import run
from laconic.cli.output import JsonFile, check_outputs, console_for, write_json
from laconic.cli.progress import parts_bar

app = typer.Typer(
    help="Measure Laconic against what you would pick instead.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


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
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from benchmarks.codecs import render, run_codec_benchmark

    check_outputs(json=json_file)
    console = console_for(json_file)
    console.width = max(console.width, 100)  # a narrower table would lose its last columns
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        result = run_codec_benchmark(data=data, repeats=repeats, quick=quick, progress=progress)
    console.print(render(result))
    if json_file is not None:
        write_json(result.rows, json_file)


@app.command("train")
def train(
    data: Path | None = typer.Option(
        None, help="Folder of Parquet files with columns label, c_*, d_*; left out: generated samples."
    ),
    rates: str = typer.Option(
        "1000",
        help="Rates of the links to time at, in Mbit/s, separated by commas; the matched one comes first.",
    ),
    hosts: int | None = typer.Option(None, min=2, help="Hosts to time on; left out: one for each core."),
    seeds: int = typer.Option(1, min=1, help="Paired runs for accuracy."),
    full: bool = typer.Option(
        False, help="More rounds, whole epochs, every method and data set: an hour or two."
    ),
    json_file: JsonFile = None,
) -> None:
    """Step time, bytes and accuracy of training, against what you would use instead, on a real wire."""
    from benchmarks.results import Machine
    from benchmarks.training.benchmark import render, run_training_benchmark

    check_outputs(json=json_file)
    rates_mbit = _rates(rates)
    console = console_for(json_file)
    console.width = max(console.width, 110)
    console.print(str(Machine.this()))
    with console.status("starting") as status:
        result = run_training_benchmark(
            data=data, rates_mbit=rates_mbit, hosts=hosts, seeds=seeds, full=full, say=status.update
        )
    console.print(render(result))
    if json_file is not None:
        write_json(result.as_json(), json_file)


@app.command("switch")
def switch(
    rates: str = typer.Option("200,1000", help="Rates of the links, in Mbit/s, separated by commas."),
    hosts: int = typer.Option(4, min=2, max=32, help="Number of hosts."),
    values: int = typer.Option(4_000_000, min=1, help="Integers of 32 bits that each host contributes."),
    rounds: int = typer.Option(5, min=1, help="Sums of every run; the fastest counts."),
    turns: int = typer.Option(2, min=1, help="Runs of every method, in turn."),
    json_file: JsonFile = None,
) -> None:
    """Sum of integers by a switch, in the kernel and in user space, against gloo's ring all-reduce."""
    from benchmarks.reduction.switch import render, run_switch_benchmark
    from benchmarks.results import Machine

    check_outputs(json=json_file)
    rates_mbit = _rates(rates)
    console = console_for(json_file)
    console.print(str(Machine.this()))
    with console.status("starting") as status:
        rows = run_switch_benchmark(
            rates_mbit=rates_mbit, hosts=hosts, values=values, rounds=rounds, turns=turns, say=status.update
        )
    console.print(render(rows))
    if json_file is not None:
        write_json([row.as_dict() for row in rows], json_file)


@app.command("adapt")
def adapt(
    data: Path | None = typer.Option(
        None, help="Folder of Parquet files with columns label, c_*, d_*; left out: generated samples."
    ),
    seeds: int | None = typer.Option(None, min=1, help="Paired runs; left out: 2, or 5 with --full."),
    rates: str = typer.Option(
        "200,loopback",
        help="Links to time at, in Mbit/s or loopback, separated by commas; empty: none.",
    ),
    full: bool = typer.Option(False, help="All bounds, budgets and decays: an hour or two."),
    json_file: JsonFile = None,
) -> None:
    """Bounds by table and iteration, guard and economy: accuracy, bytes and step time against the paper's."""
    from benchmarks.adaptation.benchmark import run_adaptation_benchmark
    from benchmarks.adaptation.tables import render
    from benchmarks.results import Machine
    from laconic.errors import ConfigError

    check_outputs(json=json_file)
    try:
        rates_mbit = [
            None if rate.strip() == "loopback" else float(rate) for rate in rates.split(",") if rate.strip()
        ]
    except ValueError as error:
        raise ConfigError(
            f"--rates: expected numbers or loopback, separated by commas, got {rates!r}"
        ) from error
    console = console_for(json_file)
    console.width = max(console.width, 120)
    console.print(str(Machine.this()))
    with console.status("starting") as status:
        result = run_adaptation_benchmark(
            data=data, seeds=seeds, rates_mbit=rates_mbit, full=full, say=status.update
        )
    console.print(render(result.rows, result.encoders))
    if json_file is not None:
        write_json(result.as_json(), json_file)


@app.command("placement")
def placement(
    data: Path | None = typer.Option(
        None, help="Folder of Parquet files with columns label, c_*, d_*; left out: generated samples alone."
    ),
    full: bool = typer.Option(False, help="Many more repeats: half an hour."),
    json_file: JsonFile = None,
) -> None:
    """Predicted against measured bytes and time, and plans against what others would do with the same codecs."""
    from benchmarks.placement.benchmark import as_json, run_placement_benchmark
    from benchmarks.placement.tables import render
    from benchmarks.results import Machine

    check_outputs(json=json_file)
    console = console_for(json_file)
    console.width = max(console.width, 110)
    with console.status("starting") as status:
        rows = run_placement_benchmark(data=data, full=full, say=status.update)
    console.print(str(Machine.this()), highlight=False)
    console.print(render(rows))
    if json_file is not None:
        write_json(as_json(rows), json_file)


@app.command("reduce")
def reduce(
    hosts: int = typer.Option(2, min=2, help="Hosts to time on; cores should suffice for a core each."),
    rate: float = typer.Option(1000, min=1, help="Rate of the links, in Mbit/s."),
    data: Path | None = typer.Option(
        None, help="Folder with book_crossing.parquet, for the NCF model; left out: generated ids."
    ),
    full: bool = typer.Option(False, help="Three times as many repeats: half an hour."),
    json_file: JsonFile = None,
    words: int = typer.Option(1 << 24, min=1, hidden=True),
) -> None:
    """Time, bytes and exactness of sums over hosts: gloo, torch's hooks, top-k and Laconic, on a real wire."""
    from dataclasses import asdict

    from benchmarks.reduction.benchmark import parts_of, run_reduction_benchmark
    from benchmarks.reduction.plan import usual_plan
    from benchmarks.reduction.tables import render
    from benchmarks.results import Machine

    check_outputs(json=json_file)
    plan = usual_plan(data, full=full, words=words)
    console = console_for(json_file)
    console.width = max(console.width, 120)
    console.print(str(Machine.this()))
    with parts_bar(console, parts_of(plan, hosts)) as say:
        rows = run_reduction_benchmark(plan, hosts=hosts, rate_mbit=rate, say=say)
    console.print(render(rows))
    if json_file is not None:
        write_json([asdict(row) for row in rows], json_file)


@app.command("hybrid")
def hybrid(
    rate: float | None = typer.Option(
        None,
        min=1,
        help="Rate of the links, in Mbit/s; left out: where plain communicates for 60 % of a step.",
    ),
    full: bool = typer.Option(False, help="Three times as many rounds: a quarter of an hour."),
    json_file: JsonFile = None,
) -> None:
    """Step time of a divided and replicated DLRM with thresholds on all that its MLPs send, on a real wire."""
    from dataclasses import asdict

    from benchmarks.results import Machine
    from benchmarks.thresholding.hybrid.benchmark import parts_of, run_hybrid_benchmark
    from benchmarks.thresholding.hybrid.plan import usual_plans
    from benchmarks.thresholding.hybrid.tables import render

    check_outputs(json=json_file)
    plans = usual_plans(full=full)
    console = console_for(json_file)
    console.width = max(console.width, 120)
    console.print(str(Machine.this()))
    with parts_bar(console, parts_of(plans, rate)) as say:
        rows = run_hybrid_benchmark(plans, rate_mbit=rate, say=say)
    console.print(render(rows))
    if json_file is not None:
        write_json([asdict(row) for row in rows], json_file)


@app.command("serve")
def serve(
    data: Path | None = typer.Option(
        None, help="Folder of Parquet files with columns label, c_*, d_*; left out: generated samples."
    ),
    engines: str = typer.Option(
        "fp32,compile,torchao,onnxruntime,laconic", help="Engines to measure, separated by commas."
    ),
    full: bool = typer.Option(
        False, help="Whole epochs of training, batch 64 too, more rounds: half an hour."
    ),
    json_file: JsonFile = None,
) -> None:
    """Throughput, latency, size and accuracy of served models, against fp32, torch.compile and other int8."""
    from dataclasses import asdict

    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    from benchmarks.results import Machine
    from benchmarks.serving.benchmark import run_serving_benchmark
    from benchmarks.serving.engines import ENGINES
    from benchmarks.serving.tables import render
    from laconic.errors import ConfigError

    check_outputs(json=json_file)
    names = [name.strip() for name in engines.split(",") if name.strip()]
    unknown = [name for name in names if name not in ENGINES]
    if unknown or not names:
        raise ConfigError(f"--engines: expected some of {', '.join(ENGINES)}, got {engines!r}")
    console = console_for(json_file)
    console.width = max(console.width, 120)
    console.print(str(Machine.this()))
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("starting", total=None)

        def show(text: str, done: float, total: int) -> None:
            progress.update(task, description=text, completed=done, total=total)

        result = run_serving_benchmark(data=data, full=full, engines=names, show=show)
    console.print(render(result))
    if json_file is not None:
        write_json([asdict(row) for row in result.all_rows()], json_file)


def _rates(text: str) -> list[float]:
    from laconic.errors import ConfigError

    try:
        return [float(rate) for rate in text.split(",") if rate.strip()]
    except ValueError as error:
        raise ConfigError(f"--rates: expected numbers separated by commas, got {text!r}") from error


if __name__ == "__main__":
    run(app)
