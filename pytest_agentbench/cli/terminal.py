"""Standard output as a session's summary is written to, outside of pytest."""

from __future__ import annotations

import os
import shutil
import sys

_CODES = {"bold": 1, "light": 2, "red": 31, "green": 32, "yellow": 33, "cyan": 36}


class Standard:
    """`reports.Terminal` on stdout. Marks show on a terminal, unless the environment says NO_COLOR."""

    verbosity = 0
    no_summary = False

    def __init__(self) -> None:
        self.hasmarkup = sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"

    def write(self, content: str, *, flush: bool = False, **markup: bool) -> None:
        """Text that others follow in the same line; what the output cannot encode is escaped."""
        codes = ";".join(str(_CODES[mark]) for mark, on in markup.items() if on) if self.hasmarkup else ""
        encoding = sys.stdout.encoding or "ascii"
        shown = content.encode(encoding, "backslashreplace").decode(encoding)
        print(f"\x1b[{codes}m{shown}\x1b[0m" if codes else shown, end="", flush=flush)

    def line(self, msg: str = "", **markup: bool) -> None:
        """The end of a line."""
        self.write(msg, **markup)
        print()

    def write_line(self, line: str, **markup: bool) -> None:
        """A line of its own."""
        self.line(line, **markup)

    def write_sep(self, sep: str, title: str | None = None, **markup: bool) -> None:
        """A line of `sep` around a title."""
        shown = f" {title} " if title is not None else ""
        self.line(shown.center(shutil.get_terminal_size().columns, sep), **markup)
