"""``laconic report`` makes a page of a result, ``laconic demo`` trains and makes one."""

from __future__ import annotations

from pathlib import Path

import typer

from laconic.cli.output import JsonFile, check_outputs, console_for, write_json


def report(
    result: Path = typer.Argument(
        help="Result file of a comparison, of laconic tune, laconic simulate or laconic quantize, JSON; or the "
        "folder of a run, or its metrics.jsonl."
    ),
    out: Path = typer.Option(Path("report.html"), help="HTML file to write; replaced if it exists."),
) -> None:
    """Turn a result file, or what a run wrote down, into one HTML page that needs no network."""
    from laconic.report import read_any, write_report

    write_report(read_any(result), out)
    typer.echo(f"{out}: {out.stat().st_size / 1e6:.1f} MB, opens in any browser")


def demo(
    out: Path = typer.Option(Path("report.html"), help="Page to write."),
    json_file: JsonFile = None,
) -> None:
    """Train a DLRM plain and with Laconic on a slow network: a table and a page. Two minutes."""
    from rich.table import Table

    from laconic.demo.run import run_demo
    from laconic.report import write_report
    from laconic.report.result import null_changes, seed_changes

    check_outputs(out=out, json=json_file)
    console = console_for(json_file)
    console.width = max(console.width, 108)
    with console.status("starting ranks") as status:
        result = run_demo(status.update)
    first = result.methods[0]
    table = Table(title=result.title, title_justify="left")
    figures = ("step", "speed", "communicating", "rows + ids", "gradients", "dense", "fewer bytes", "AUC")
    for name in ("", *figures):
        table.add_column(name, justify="right" if name else "left", no_wrap=True)
    for method in result.methods:
        sent = method.bytes_forward + method.bytes_ids
        table.add_row(
            method.name,
            f"{method.median_ms:.0f} ms",
            f"{first.median_ms / method.median_ms:.2f}x",
            f"{method.communication_share:.0%}",
            f"{sent / 1e3:,.0f} kB",
            f"{method.bytes_backward / 1e3:,.0f} kB",
            f"{method.bytes_dense / 1e3:,.0f} kB",
            f"{first.bytes_total / method.bytes_total:.1f}x",
            "" if method.auc is None else f"{method.auc:.4f}",
        )
    console.print(table)
    console.print(f"{result.setting['rate_mbit']} Mbit/s, {result.setting['wire']}; bytes per step and rank")
    console.print(f"laconic sends {result.setting['laconic sends']}")
    changes = ", ".join(f"{value:+.4f}" for value in seed_changes(result.methods))
    null = ", ".join(f"{value:+.4f}" for value in null_changes(first))
    console.print(
        f"AUC: mean of {len(first.seed_auc)} seeds; laconic less plain, seed by seed: {changes}; plain alone differs by "
        f"{max(first.seed_auc) - min(first.seed_auc):.4f} from seed to seed"
        + (f", and by {null} where its first weights differ by a millionth" if null else "")
    )
    write_report(result, out)
    console.print(f"The whole story, with charts: {out}")
    write_json(result.model_dump(mode="json"), json_file)
