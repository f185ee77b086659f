"""How far a long piece of work is: parts of a known number, and how much of the part at hand is done."""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["Steps"]


class Steps:
    """Tells ``show`` what is being done, how many parts are done (with fractions), and of how many."""

    def __init__(self, total: int, show: Callable[[str, float, int], None]) -> None:
        self._total, self._show = total, show
        self._begun = 0
        self._text = ""

    def begin(self, text: str) -> None:
        """Go on to the next part."""
        self._begun += 1
        self._text = text
        self._show(text, self._begun - 1, self._total)

    def say(self, text: str) -> None:
        """Say what is done now, within this part."""
        self._show(text, self._begun - 1, self._total)

    def within(self, done: int, total: int) -> None:
        """Say how much of this part is done."""
        self._show(f"{self._text}, {done} of {total}", self._begun - 1 + done / total, self._total)
