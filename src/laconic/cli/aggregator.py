"""``laconic aggregator``: add integers of many workers in the network, in the kernel or not."""

from __future__ import annotations

import dataclasses
import signal
import socket
import time
from contextlib import suppress
from typing import TYPE_CHECKING, NoReturn

import typer

from laconic.cli.output import JsonFile, check_outputs, console_for, facts_table, leave, write_json

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from laconic.reduce.network import Aggregator, Counters
    from laconic.reduce.network.xdp import Need

_REFRESH_S = 0.5


def aggregator(
    listen: str = typer.Option(
        "127.0.0.1", help="IPv4 address of this machine that workers send to, with or without a port."
    ),
    interface: list[str] = typer.Option(
        [],
        help="Aggregate in the kernel, on what enters this interface; may be repeated. Left out: in user space.",
    ),
    job: list[str] = typer.Option(
        [],
        help="Name of a job, 16 hexadecimal digits; may be repeated. Left out: a random one, which is printed.",
    ),
    workers: int = typer.Option(2, help="Number of workers of every job, 1 to 32."),
    json_file: JsonFile = None,
    check: bool = typer.Option(False, "--check", help="Say what this machine lacks for XDP, and stop."),
) -> None:
    """Sum what workers send and send back the sum, until interrupted.

    Packets of other jobs are dropped and counted, as are malformed ones. Workers join by
    laconic.reduce.network.InNetwork, with the job's name.
    """
    from rich.console import Console

    from laconic.reduce.network import UserAggregator, XdpAggregator
    from laconic.reduce.network.job import format_job, parse_job, random_job
    from laconic.reduce.network.xdp import check as check_machine

    if check:
        needs = check_machine()
        _print_needs(Console(highlight=False), needs)
        raise typer.Exit(0 if all(need.against is None for need in needs) else 1)
    check_outputs(json=json_file)
    console = console_for(json_file)
    jobs = [parse_job(name) for name in job] or [random_job()]
    indices = [_index(name) for name in interface]
    signal.signal(signal.SIGTERM, leave)
    with XdpAggregator(listen, indices) if indices else UserAggregator(listen) as running:
        for number in jobs:
            running.register(number, workers)
        with suppress(KeyboardInterrupt, SystemExit):
            where = f"in the kernel on {', '.join(interface)}" if interface else "in user space"
            console.print(f"aggregating on {running.address}, {where}")
            for number in jobs:
                console.print(f"job {format_job(number)}: {workers} workers")
            _show(console, running)
        counters = running.counters()
    console.print(_table(counters))
    names = [format_job(number) for number in jobs]
    write_json({"jobs": names, "workers": workers, "counters": dataclasses.asdict(counters)}, json_file)


def _index(name: str) -> int:
    from laconic.errors import ConfigError

    known = {interface: index for index, interface in socket.if_nameindex()}
    if name not in known:
        raise ConfigError(f"--interface: no interface {name!r}; known: {', '.join(known)}")
    return known[name]


def _show(console: Console, running: Aggregator) -> NoReturn:
    """Show the counters on a terminal until interrupted; elsewhere, only wait."""
    from rich.live import Live

    if not console.is_terminal:
        while True:
            time.sleep(_REFRESH_S)
            running.counters()  # raises where the aggregator has failed
    with Live(_table(running.counters()), console=console, transient=True) as live:
        while True:
            time.sleep(_REFRESH_S)
            live.update(_table(running.counters()))


def _table(counters: Counters) -> Table:
    figures = dataclasses.asdict(counters).items()
    return facts_table((name.replace("_", " "), f"{count:>14,}") for name, count in figures)


def _print_needs(console: Console, needs: list[Need]) -> None:
    marks = {True: "[green]yes", False: "[red]no"}
    console.print(
        facts_table(
            (f"[bold]{need.name}", marks[need.against is None], need.against or "works") for need in needs
        )
    )
