"""What commands print of files that others wrote."""

from __future__ import annotations

from pytest_agentbench.terminal_text import visible_line


def printable(text: str) -> str:
    """Return the text on one line, with escapes for all that does not print: a file must not steer the terminal."""
    shown = visible_line(text)
    if shown.isprintable():
        return shown
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in shown)
