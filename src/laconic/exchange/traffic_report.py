"""What traveled, what it would have been, and what it cost: one value for everything that sends.

It prints as a table, in a terminal, in a log file and in a notebook. ``to_dict()`` is ready for
JSON, and ``save`` writes an HTML page or a JSON file. Figures are those of one rank, or of
all that are in one process, since the start or the last reset: bytes that left it, and seconds of
its threads.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from html import escape
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from laconic.errors import ConfigError
from laconic.exchange.ledger import Direction, Ledger
from laconic.files import json_text, write_whole
from laconic.numerals import bytes_text, milliseconds, times
from laconic.page import Page, largest, section, table

if TYPE_CHECKING:
    from rich.table import Table

__all__ = ["Bypass", "Flow", "FlowTotal", "Traffic", "TrafficReport"]

Flow = Literal["rows", "gradients", "ids", "dense"]
"""What travels: rows of tables, their gradients, ids that are asked for, dense gradients."""

_SUMS = ("bytes_before", "bytes_sent", "ratio")
_FLOWS: dict[Direction, Flow] = {"forward": "rows", "backward": "gradients", "ids": "ids"}
_SHOWN = 12  # names in a printed table; the page and the dictionary have all
_WIDTH, _LONGEST = 200, 48  # columns of a printed table, and of one of its cells, at most

_BYTES = ("name", "direction", "before", "sent", "ratio")
_TIMES = ("direction", "steps", "encoding", "on the wire", "decoding")
_BYPASSED = ("bypassed", "because", "times")
_BYTES_NOTE = (
    "Blue is what was sent, gray what it would have been. Headers of messages that carry several "
    "tables are in the sums above only."
)
_TIMES_NOTE = (
    "Directions overlap with each other and with computation, so a step is shorter than their sum. "
    "Time on the wire includes waiting for slower ranks."
)

Cells = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Traffic:
    """Bytes of one table, or of one bucket of parameters, in one direction."""

    name: str
    """Name of the table, or of the parameters that travel together."""
    direction: Flow
    bytes_before: int
    """Bytes that would have left this rank without compression."""
    bytes_sent: int
    """Bytes that left this rank, without headers of messages that carry several names."""

    @property
    def ratio(self) -> float:
        """Bytes before over bytes sent; 1 where nothing was sent."""
        return _ratio(self.bytes_before, self.bytes_sent)


@dataclass(frozen=True, slots=True)
class FlowTotal:
    """Bytes and seconds of everything that travels in one direction."""

    direction: Flow
    steps: int
    """Number of steps that sent in this direction."""
    bytes_before: int
    """Bytes that would have left this rank without compression."""
    bytes_sent: int
    """Bytes that left this rank, headers of messages included."""
    encode_s: float
    """Seconds until the messages were ready."""
    wire_s: float
    """Seconds in messages, waiting for slower ranks included."""
    decode_s: float
    """Seconds that decoding took, and adding up what came."""

    @property
    def ratio(self) -> float:
        """Bytes before over bytes sent; 1 where nothing was sent."""
        return _ratio(self.bytes_before, self.bytes_sent)


@dataclass(frozen=True, slots=True)
class Bypass:
    """Something that traveled as it was, and why."""

    name: str
    """Name of the table, or of the parameters that travel together."""
    reason: str
    times: int
    """Number of messages, or of steps, that were sent so."""


@dataclass(frozen=True, slots=True, repr=False)
class TrafficReport:
    """What one rank sent, what it would have sent, how long that took, and what was bypassed.

    >>> rows = Traffic("user", "rows", 4_000_000, 500_000)
    >>> total = FlowTotal("rows", 10, 4_000_000, 500_400, 0.02, 0.3, 0.01)
    >>> report = TrafficReport(0, 2, (rows,), (total,))
    >>> round(report.ratio, 2), report.to_dict()["rows"][0]["bytes_sent"]
    (7.99, 500000)
    """

    rank: int | None
    """Rank whose bytes these are; None: those of all ranks together."""
    ranks: int
    """Number of ranks that exchange."""
    rows: tuple[Traffic, ...]
    """Bytes by name and direction."""
    totals: tuple[FlowTotal, ...]
    """Bytes and seconds by direction."""
    bypassed: tuple[Bypass, ...] = ()
    """What traveled as it was, and why."""

    @classmethod
    def from_ledger(
        cls, ledger: Ledger, *, rank: int | None, ranks: int, bypassed: Iterable[Bypass] = ()
    ) -> TrafficReport:
        """Report what a ledger of tables has counted; ``bypassed``: tables that travel exactly."""
        accounts = [(flow, ledger.accounts[direction]) for direction, flow in _FLOWS.items()]
        rows = [
            Traffic(name, flow, int(account.before_T[t]), int(account.after_T[t]))
            for t, name in enumerate(ledger.names)
            for flow, account in accounts
        ]
        totals = [
            FlowTotal(flow, a.steps, a.before, a.sent, a.encode_s, a.wire_s, a.decode_s)
            for flow, a in accounts
        ]
        return cls(rank, ranks, tuple(rows), tuple(totals), tuple(bypassed))

    @property
    def steps(self) -> int:
        """Number of steps that sent anything."""
        return max((total.steps for total in self.totals), default=0)

    @property
    def bytes_before(self) -> int:
        """Bytes that would have left this rank without compression."""
        return sum(total.bytes_before for total in self.totals)

    @property
    def bytes_sent(self) -> int:
        """Bytes that left this rank, headers of messages included."""
        return sum(total.bytes_sent for total in self.totals)

    @property
    def ratio(self) -> float:
        """Bytes before over bytes sent; 1 where nothing was sent."""
        return _ratio(self.bytes_before, self.bytes_sent)

    def to_dict(self) -> dict[str, Any]:
        """Return everything as numbers and texts, ready for JSON."""
        return {
            **{name: getattr(self, name) for name in ("rank", "ranks", "steps", *_SUMS)},
            "rows": [{**asdict(row), "ratio": row.ratio} for row in self.rows],
            "totals": [{**asdict(total), "ratio": total.ratio} for total in self.totals],
            "bypassed": [asdict(bypass) for bypass in self.bypassed],
        }

    def save(self, path: str | Path) -> None:
        """Write ``.html``, one page with everything in it, or ``.json``, the dictionary."""
        path = Path(path)
        if path.suffix not in (".html", ".json"):
            raise ConfigError(f"report: expected a file that ends in .html or .json, got {str(path)!r}")
        if not path.parent.is_dir():
            raise ConfigError(f"report: no folder {str(path.parent)!r} to write into; make it first")
        write_whole(path, _page(self).html() if path.suffix == ".html" else json_text(self.to_dict()))

    def __str__(self) -> str:
        from rich.console import Console  # noqa: PLC0415 -- only who prints waits for it

        text = StringIO()
        console = Console(file=text, width=_WIDTH, color_system=None, force_jupyter=False)
        console.print(_headline(self), highlight=False, markup=False, soft_wrap=True)
        for printed in _printed(self):
            console.print()
            console.print(printed)
        return "\n".join(line.rstrip() for line in text.getvalue().splitlines())

    __repr__ = __str__

    def _repr_html_(self) -> str:
        tables = [
            (_BYTES, [*_named(self), *_summed(self)]),
            (_TIMES, _timed(self)),
            (_BYPASSED, _bypasses(self)),
        ]
        html = (table(names, map(_escaped, rows), "traffic") for names, rows in tables if rows)
        return f"<p>{escape(_headline(self))}</p>{''.join(html)}"


def _ratio(before: int, sent: int) -> float:
    return before / sent if sent else 1.0


def _escaped(cells: Cells) -> Cells:
    return tuple(map(escape, cells))


def _whose(report: TrafficReport) -> str:
    if report.rank is None:
        return f"{report.ranks} ranks together"
    return f"rank {report.rank} of {report.ranks}"


def _headline(report: TrafficReport) -> str:
    sent, before = bytes_text(report.bytes_sent), bytes_text(report.bytes_before)
    return (
        f"{_whose(report)} sent {sent} instead of {before} in {report.steps:,} "
        f"{'step' if report.steps == 1 else 'steps'}: {times(report.ratio)} fewer; per step:"
    )


def _bytes(name: str, direction: str, of: Traffic | FlowTotal | TrafficReport, steps: int) -> Cells:
    """Cells of one line: bytes per step."""
    figures = (of.bytes_before, of.bytes_sent)
    return (name, direction, *(bytes_text(nbytes / max(steps, 1)) for nbytes in figures), times(of.ratio))


def _named(report: TrafficReport) -> list[Cells]:
    """One line for every name and direction."""
    steps = {total.direction: total.steps for total in report.totals}
    return [_bytes(row.name, row.direction, row, steps.get(row.direction, 0)) for row in report.rows]


def _most(report: TrafficReport) -> list[Cells]:
    """All lines of the names that send most, each name once."""
    sent: Counter[str] = Counter()
    for row in report.rows:
        sent[row.name] += row.bytes_sent
    most = largest(list(sent), sent.__getitem__, _SHOWN)
    lines = []
    for name in most:
        own = [cells for cells in _named(report) if cells[0] == name]
        lines += [own[0], *(("", *cells[1:]) for cells in own[1:])]
    left_out = [(f"{len(sent) - len(most)} more that send less", *[""] * (len(_BYTES) - 1))]
    return lines + left_out if len(most) < len(sent) else lines


def _summed(report: TrafficReport) -> list[Cells]:
    """One line for every direction, and one for all of them."""
    lines = [_bytes("total", total.direction, total, total.steps) for total in report.totals]
    return [*lines, _bytes("total", "all", report, report.steps)] if len(lines) > 1 else lines


def _timed(report: TrafficReport) -> list[Cells]:
    lines = []
    for total in report.totals:
        seconds = (total.encode_s, total.wire_s, total.decode_s)
        each = (milliseconds(1e3 * s / max(total.steps, 1)) for s in seconds)
        lines.append((total.direction, f"{total.steps:,}", *each))
    return lines


def _bypasses(report: TrafficReport) -> list[Cells]:
    return [(bypass.name, bypass.reason, f"{bypass.times:,}") for bypass in report.bypassed]


def _printed(report: TrafficReport) -> Iterator[Table]:
    """Tables for a terminal."""
    from rich import box  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    def printed(names: Cells, sections: Iterable[Iterable[Cells]], left: int) -> Table:
        shown = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
        for place, name in enumerate(names):
            justify: Literal["left", "right"] = "left" if place < left else "right"
            shown.add_column(name, justify=justify, no_wrap=True, max_width=_LONGEST)
        for lines in sections:
            for cells in lines:
                shown.add_row(*(Text(cell) for cell in cells))
            shown.add_section()
        return shown

    yield printed(_BYTES, [_most(report), _summed(report)], 2)
    yield printed(_TIMES, [_timed(report)], 1)
    if report.bypassed:
        yield printed(_BYPASSED, [_bypasses(report)], 2)


def _page(report: TrafficReport) -> Page:
    """Lay out the page that ``save`` writes; bars are plain HTML, so it needs no script."""
    per_step = bytes_text(report.bytes_sent / max(report.steps, 1))
    codecs, wire = (
        sum(seconds) / max(report.steps, 1)
        for seconds in (
            [total.encode_s + total.decode_s for total in report.totals],
            [total.wire_s for total in report.totals],
        )
    )
    longest = max((row.bytes_before for row in report.rows), default=0)
    named = [
        (*_escaped(cells), _bar(row, longest)) for cells, row in zip(_named(report), report.rows, strict=True)
    ]
    summed = [
        (*bytes_[1:], *times_[1:])
        for bytes_, times_ in zip(_summed(report), [*_timed(report), ("",) * len(_TIMES)], strict=False)
    ]
    sections = [
        section("Per step", table((*_BYTES[1:], *_TIMES[1:]), summed, "traffic"), _TIMES_NOTE),
        section("Per step, by name", table((*_BYTES, ""), named, "traffic"), _BYTES_NOTE),
    ]
    if report.bypassed:
        bypassed = table(_BYPASSED, map(_escaped, _bypasses(report)), "decisions")
        sections.append(section("Bypassed", bypassed, "What traveled as it was, how often, and why."))
    return Page(
        title="What traveled",
        facts=[("bytes of", _whose(report)), ("steps", f"{report.steps:,}")],
        intro=f"Bytes that {_whose(report)} sent, against what it would have been without compression.",
        cards=[
            (times(report.ratio), "fewer bytes", f"{bytes_text(report.bytes_sent)} sent"),
            (per_step, "per step", f"{bytes_text(report.bytes_before / max(report.steps, 1))} before"),
            (milliseconds(1e3 * codecs), "in codecs", "per step, all directions"),
            (milliseconds(1e3 * wire), "on the wire", "per step, waiting included"),
        ],
        sections=sections,
        charts=False,
    )


def _bar(row: Traffic, longest: int) -> str:
    """Draw the bytes of a line, and what they were before, against the longest of the page."""

    def width(nbytes: int) -> str:
        return f"{100 * min(nbytes, longest) / max(longest, 1):.2f}%"

    return (
        f'<svg width="160" height="10" role="img" aria-label="{times(row.ratio)}">'
        f'<rect width="{width(row.bytes_before)}" height="10" rx="2" fill="var(--line)"/>'
        f'<rect width="{width(row.bytes_sent)}" height="10" rx="2" fill="var(--forward)"/></svg>'
    )
