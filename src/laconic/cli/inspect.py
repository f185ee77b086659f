"""``laconic info`` shows what is installed, ``laconic codec inspect`` explains encoded bytes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer

from laconic.cli.output import JsonFile, check_outputs, console_for, facts_table, write_json

codec_app = typer.Typer(help="Look into encoded bytes.", no_args_is_help=True)


def info(json_file: JsonFile = None) -> None:
    """Show versions, kernels and the instruction set in use."""
    check_outputs(json=json_file)
    facts = gather()
    write_json(facts, json_file)
    shown = (
        (f"[bold]{name.replace('_', ' ')}", ", ".join(value) if isinstance(value, list) else str(value))
        for name, value in facts.items()
    )
    console_for(json_file).print(facts_table(shown))


def gather() -> dict[str, Any]:
    """Return the facts that a bug report needs."""
    import os
    import platform

    import torch

    from laconic import __version__, kernels
    from laconic.machine import cores, cpu_model

    return {
        "laconic": __version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "platform": platform.platform(),
        "cpu": cpu_model(),
        "cores": cores(),
        "threads": torch.get_num_threads(),
        "kernels_in_use": kernels.active().name,
        "kernels_available": list(kernels.available()),
        "kernels_forced": os.environ.get(kernels.ENVIRONMENT, "no"),
    }


@codec_app.callback()
def _group() -> None:
    """Look into encoded bytes."""


@codec_app.command("inspect")
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
    write_json([asdict(field) for field in fields], json_file)
    table = Table("offset", "bytes", "field", "value", title=str(file), title_justify="left")
    table.columns[0].justify = table.columns[1].justify = "right"
    for field in fields:
        table.add_row(f"{field.offset:,}", f"{field.size:,}", field.name, field.value)
    console_for(json_file).print(table)
