"""``laconic report``: a page to look at, from a result file or the metrics of a run."""

from __future__ import annotations

from pathlib import Path

import typer


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
