"""Draws the README's chart, light and dark: python docs/figures/draw.py [FOLDER].

``step_time.json`` beside this file has the measured figures, with command, machine and date.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from html import escape
from pathlib import Path

HERE = Path(__file__).parent
WIDTH, LEFT, RIGHT = 760, 190, 90
TOP, BAR, GAP = 58, 26, 14


@dataclass(frozen=True)
class Theme:
    """Colors of a page."""

    name: str
    text: str
    faint: str
    bar: str
    ours: str


THEMES = (
    Theme("light", text="#1f2328", faint="#59636e", bar="#afb8c1", ours="#0a7d55"),
    Theme("dark", text="#f0f6fc", faint="#9198a1", bar="#59636e", ours="#3fb98a"),
)


def draw(figures: dict[str, object], theme: Theme) -> str:
    """Return horizontal bars, one per method, longest first; lengths are milliseconds."""
    step_ms: dict[str, float] = figures["step_ms"]  # type: ignore[assignment]
    longest = max(step_ms.values())
    height = TOP + len(step_ms) * (BAR + GAP) + 24
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}"'
        ' font-family="-apple-system, Segoe UI, Helvetica, Arial, sans-serif" font-size="15" role="img">',
        _text(0, 20, str(figures["title"]), theme.text, size=17, weight=600),
        _text(0, 42, str(figures["subtitle"]), theme.faint, size=13),
    ]
    for number, (method, ms) in enumerate(step_ms.items()):
        y = TOP + number * (BAR + GAP)
        length = (WIDTH - LEFT - RIGHT) * ms / longest
        ours = method == "Laconic"
        color, weight = (theme.ours, 600) if ours else (theme.bar, 400)
        label = f"{ms:.0f} ms" + (f", {longest / ms:.1f}x" if ours else "")
        parts += [
            _text(LEFT - 12, y + 18, method, theme.text, anchor="end", weight=weight),
            f'<rect x="{LEFT}" y="{y}" width="{length:.1f}" height="{BAR}" rx="3" fill="{color}"/>',
            _text(LEFT + length + 8, y + 18, label, theme.text, weight=weight),
        ]
    parts += [_text(0, height - 8, str(figures["source"]), theme.faint, size=12), "</svg>"]
    return "\n".join(parts) + "\n"


def _text(
    x: float, y: float, text: str, color: str, *, size: int = 15, weight: int = 400, anchor: str = "start"
) -> str:
    return (
        f'<text x="{x:.1f}" y="{y}" fill="{color}" font-size="{size}" font-weight="{weight}"'
        f' text-anchor="{anchor}">{escape(text)}</text>'
    )


if __name__ == "__main__":
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else HERE
    figures = json.loads((HERE / "step_time.json").read_text())
    for theme in THEMES:
        (folder / f"step-time-{theme.name}.svg").write_text(draw(figures, theme))
