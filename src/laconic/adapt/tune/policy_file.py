"""The policy file: tuned bounds as TOML that a person can read and edit, with a reason behind every choice.

::

    [exchange]
    kind = "bounded"
    relative = true
    rounding = "nearest"    # of rows; gradients are always rounded without bias

    [[exchange.rules]]      # 92,108 rows; SC'24 class large, homogenization index 1.000
    tables = "c_user"
    bound = 0.06            # 5.1x fewer bytes; loss +0.0031%; 0.08 would save 6% more at +0.0024%
    exact = "gradients"     # exact; loss +0.0000%; ...

``adapt.settings`` reads it.
"""

from __future__ import annotations

from glob import escape

from laconic.adapt.tune.result import TunedTable, TuneResult
from laconic.config import toml_string
from laconic.numerals import bytes_text, share

__all__ = ["policy_text"]

_COMMENT_AT = 24  # column in which reasons begin


def policy_text(tuned: TuneResult) -> str:
    """Return the text of a policy file."""
    return "\n\n".join([_header(tuned), _exchange(), *map(_rule, tuned.tables)]) + "\n"


def _header(tuned: TuneResult) -> str:
    exact, sent = tuned.bytes_exact, tuned.bytes_sent
    fewer = f", {exact / sent:.1f}x fewer" if sent else ""
    return "\n".join(
        [
            f"# Bounds for {toml_string(tuned.title)}, from laconic tune. Edit as you like.",
            "#",
            f"# measured   as {tuned.ranks} ranks, after {tuned.steps} steps of exact training: loss {tuned.loss:.4f},",
            f"#            falling by {share(tuned.slope)} of itself while steps grow e-fold",
            f"# budget     loss +{share(tuned.budget)}",
            f"# predicted  loss +{share(tuned.harm)}; {bytes_text(exact)} -> {bytes_text(sent)} a step by all ranks{fewer};",
            f"#            no choice within the budget sends less than {bytes_text(tuned.lower_bound)}",
            "#",
            "# bound: of a table's rows, as a share of their range; gradient_bound: of their gradients, as a share of",
            "# the root mean square. Behind each: what it saves and costs by itself, and what the next one would.",
        ]
    )


def _exchange() -> str:
    return "\n".join(
        [
            "[exchange]",
            'kind = "bounded"',
            "relative = true",
            _line('rounding = "nearest"', "of rows; gradients are always rounded without bias"),
        ]
    )


def _rule(table: TunedTable) -> str:
    forward, backward = table.forward.chosen, table.backward.chosen
    about = (
        f"{table.rows:,} rows; SC'24 class {table.paper_class}, "
        f"homogenization index {table.homogenization_index:.3f}"
    )
    lines = [_line("[[exchange.rules]]", about), f"tables = {toml_string(escape(table.name))}"]
    if forward.bound is None and backward.bound is None:
        both = f"rows: {forward.reason}. Gradients: {backward.reason}"
        return "\n".join([*lines, _line("exact = true", both)])
    lines.append(
        _line('exact = "rows"' if forward.bound is None else f"bound = {forward.bound!r}", forward.reason)
    )
    lines.append(
        _line(
            'exact = "gradients"' if backward.bound is None else f"gradient_bound = {backward.bound!r}",
            backward.reason,
        )
    )
    return "\n".join(lines)


def _line(code: str, comment: str) -> str:
    return f"{code:<{_COMMENT_AT}}# {comment}"
