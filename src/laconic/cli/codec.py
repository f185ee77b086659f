"""``laconic codec``: look into encoded bytes."""

from __future__ import annotations

from pathlib import Path

import typer

from laconic.cli.output import JsonFile, check_outputs, console_for, write_json

app = typer.Typer(help="Look into encoded bytes.", no_args_is_help=True)


@app.callback()
def _group() -> None:
    """Look into encoded bytes."""


@app.command("inspect")
def inspect(
    file: Path = typer.Argument(help="A frame, as written by laconic.Frame.to_bytes()."),
    json_file: JsonFile = None,
) -> None:
    """Explain the bytes of a frame, field by field."""
    from dataclasses import asdict

    from rich.table import Table

    from laconic.codecs.inspect import explain

    check_outputs(json=json_file)
    fields = explain(file.read_bytes())
    if json_file is not None:
        write_json([asdict(field) for field in fields], json_file)
    table = Table("offset", "bytes", "field", "value", title=str(file), title_justify="left")
    table.columns[0].justify = table.columns[1].justify = "right"
    for field in fields:
        table.add_row(f"{field.offset:,}", f"{field.size:,}", field.name, field.value)
    console_for(json_file).print(table)
