"""The policy file: tuned bounds as TOML that people read and edit, each with its reason.

::

    [compression]
    rows = { method = "bounded", relative_to = "range", rounding = "nearest" }
    gradients = { method = "bounded", relative_to = "rms", rounding = "unbiased" }

    [compression.tables."c_user"]   # 92,108 rows; SC'24 class large, homogenization index 1.000
    rows.bound = 0.06               # 5.1x fewer bytes; loss +0.0031%; 0.08 would save ...
    gradients = "exact"             # exact; loss +0.0000%; ...

``adapt.settings`` reads it.
"""

from __future__ import annotations

from glob import escape

from laconic.adapt.tune.result import TunedTable, TuneResult
from laconic.config import toml_string
from laconic.numerals import bytes_text, share

__all__ = ["policy_text"]

_COMMENT_AT = 32  # column in which reasons begin


def policy_text(tuned: TuneResult) -> str:
    """Return the text of a policy file."""
    return "\n\n".join([_header(tuned), _all_tables(), *map(_table, tuned.tables)]) + "\n"


def _header(tuned: TuneResult) -> str:
    exact, sent = tuned.bytes_exact, tuned.bytes_sent
    fewer = f", {exact / sent:.1f}x fewer" if sent else ""
    return "\n".join(
        [
            f"# Bounds for {toml_string(tuned.title)}, from laconic tune. Edit as you like.",
            "#",
            f"# measured   as {tuned.ranks} ranks, after {tuned.steps} steps: loss {tuned.loss:.4f}",
            f"# budget     loss +{share(tuned.budget)}",
            f"# predicted  loss +{share(tuned.harm)}; {bytes_text(exact)} -> {bytes_text(sent)} a step by all ranks{fewer};",
            f"#            no choice within the budget sends less than {bytes_text(tuned.lower_bound)}",
            "#",
            "# Bounds of rows are shares of their range, those of gradients of their root mean square. Behind",
            "# each: what it saves and costs by itself, and what the next one would.",
        ]
    )


def _all_tables() -> str:
    return "\n".join(
        [
            "[compression]",
            'rows = { method = "bounded", relative_to = "range", rounding = "nearest" }',
            'gradients = { method = "bounded", relative_to = "rms", rounding = "unbiased" }',
        ]
    )


def _table(table: TunedTable) -> str:
    about = (
        f"{table.rows:,} rows; SC'24 class {table.paper_class}, "
        f"homogenization index {table.homogenization_index:.3f}"
    )
    lines = [_line(f"[compression.tables.{toml_string(escape(table.name))}]", about)]
    for name, chosen in (("rows", table.forward.chosen), ("gradients", table.backward.chosen)):
        words = f'{name} = "exact"' if chosen.bound is None else f"{name}.bound = {chosen.bound!r}"
        lines.append(_line(words, chosen.reason))
    return "\n".join(lines)


def _line(code: str, comment: str) -> str:
    return f"{code:<{_COMMENT_AT}}# {comment}"
