"""``laconic info``: versions, kernels and instruction set in use."""

from __future__ import annotations

from typing import Any

from laconic.cli.output import JsonFile, check_outputs, console_for, write_json


def info(json_file: JsonFile = None) -> None:
    """Show versions, kernels and the instruction set in use."""
    from rich.table import Table

    check_outputs(json=json_file)
    facts = gather()
    if json_file is not None:
        write_json(facts, json_file)

    table = Table(show_header=False, box=None, padding=(0, 2))
    for name, value in facts.items():
        shown = ", ".join(value) if isinstance(value, list) else str(value)
        table.add_row(f"[bold]{name.replace('_', ' ')}", shown)
    console_for(json_file).print(table)


def gather() -> dict[str, Any]:
    """Facts that a bug report needs."""
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
