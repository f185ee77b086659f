"""``laconic lab``: run a job on hosts that one machine makes up, over rate-limited links."""

from __future__ import annotations

import signal
import sys
from typing import TYPE_CHECKING

import typer

from laconic.cli.output import JsonFile, check_outputs, facts_table, leave, write_json

if TYPE_CHECKING:
    from rich.console import Console

    from laconic.lab import Fact, Result

_INTERRUPTED = 128 + signal.SIGINT


def lab(
    command: list[str] = typer.Argument(
        None, help="The program and its arguments, after '--'.", metavar="-- COMMAND"
    ),
    *,
    hosts: int = typer.Option(2, help="Number of hosts; each runs the command as one rank."),
    mbps: float | None = typer.Option(
        None, help="Bandwidth of every link in each direction, in Mbit/s; left out: no limit."
    ),
    aggregator: str | None = typer.Option(
        None, help="Aggregate in the switch: xdp (in the kernel) or user (in user space)."
    ),
    loss: float = typer.Option(0.0, help="Share of packets lost, in each direction of each link."),
    duplication: float = typer.Option(0.0, help="Share of packets doubled."),
    reordering: float = typer.Option(0.0, help="Share of packets that others overtake."),
    seed: int = typer.Option(0, help="Seed of loss, duplication and reordering."),
    pin: bool = typer.Option(True, help="Give every host one core, in turn, and one thread."),
    grace: float = typer.Option(
        2.0, min=0.0, help="Seconds that hosts have to notice that another failed, before they are ended."
    ),
    json_file: JsonFile = None,
    check: bool = typer.Option(False, "--check", help="Say what this machine lacks for a lab, and stop."),
) -> None:
    """Run COMMAND on every host of a network of namespaces, as torchrun would: one rank per host.

    The exit code is that of the first host that failed.
    """
    from rich.console import Console

    from laconic.errors import ConfigError
    from laconic.lab import Faults, Lab
    from laconic.lab import check as check_machine

    console = Console(stderr=True, highlight=False)  # standard output belongs to the job
    if check:
        facts = check_machine()
        _print_facts(Console(highlight=False), facts)
        raise typer.Exit(0 if all(fact.ok for fact in facts) else 1)
    if not command:
        raise ConfigError(
            "lab: command: expected a program after '--', got nothing; write 'laconic lab --hosts 2 -- python train.py'"
        )
    check_outputs(json=json_file)
    to_stdout = json_file is not None and str(json_file) == "-"
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, leave)
    faults = Faults(loss=loss, duplication=duplication, reordering=reordering, seed=seed)
    counters = None
    try:
        with Lab(
            hosts=hosts, mbps=mbps, aggregator=aggregator, faults=faults if faults.any else None
        ) as built:
            stream = sys.stderr if to_stdout else sys.stdout
            result = built.run(command, pin_cores=pin, stream=stream, grace_s=grace)
            counters = built.aggregator_counters() if aggregator is not None else None
    except KeyboardInterrupt:
        console.print("laconic lab: interrupted; every host was ended")
        raise typer.Exit(_INTERRUPTED) from None
    limit = None if mbps is None else f"{mbps:g}mbit"
    _print_result(console, result, limit or "no limit")
    if counters is not None:
        console.print(f"aggregator: {', '.join(f'{name} {count:,}' for name, count in counters.items())}")
    write_json({"rate": limit, **result.as_dict(), "aggregator": counters}, json_file)
    raise typer.Exit(result.exit_code)


def _print_facts(console: Console, facts: list[Fact]) -> None:
    marks = {True: "[green]yes", False: "[red]no", None: "-"}
    rows = (
        (
            f"[bold]{fact.name}",
            marks[fact.ok],
            f"{fact.detail}; {fact.remedy}" if fact.remedy else fact.detail,
        )
        for fact in facts
    )
    console.print(facts_table(rows))


def _print_result(console: Console, result: Result, limit: str) -> None:
    from rich.table import Table

    title = f"{len(result.hosts)} hosts, {limit}, {result.seconds:.2f} s"
    table = Table(
        "host", "bytes sent", "bytes received", "seconds", "exit code", title=title, title_justify="left"
    )
    for column in table.columns:
        column.justify = "right"
    for host in result.hosts:
        ended = (
            " (ended)"
            if host.ended_by_lab
            else " (failed first)"
            if host.host == result.first_failure
            else ""
        )
        table.add_row(
            str(host.host),
            f"{host.bytes_sent:,}",
            f"{host.bytes_received:,}",
            f"{host.seconds:.2f}",
            f"{host.exit_code}{ended}",
        )
    console.print(table)
