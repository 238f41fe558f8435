"""Text that others wrote, made fit to be sent, stored and shown; and numbers as people read them."""

from __future__ import annotations

from pytest_agentbench.terminal_text import visible_line as visible

__all__ = [
    "apart",
    "cells",
    "clip",
    "count",
    "money",
    "number",
    "pad",
    "seconds",
    "sendable",
    "unicode_safe",
    "visible",
]


def sendable(text: str, limit: int | None = None) -> str:
    """Return a plain `str` of at most `limit` characters that UTF-8 can carry: lone surrogates become U+FFFD."""
    if limit is not None and len(text) > limit:
        text = text[: limit - 1] + "…"
    if text.isascii():
        return str(text)
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def clip(text: str, width: int, dots: str = "...") -> str:
    """At most `width` terminal cells, `dots` in place of what is cut."""
    if cells(text) <= width:
        return text
    from rich.cells import set_cell_size

    return set_cell_size(text, max(0, width - len(dots))).rstrip() + dots[: max(0, width)]


def cells(text: str) -> int:
    """Terminal cells that the text takes: CJK and emoji take two, combining marks none."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def pad(text: str, width: int, align: str = "<") -> str:
    """Return the text filled with blanks to `width` cells, on the right for `<`, on the left for `>`."""
    blanks = " " * (width - cells(text))
    return blanks + text if align == ">" else text + blanks


def unicode_safe(encoding: str | None) -> bool:
    """Return whether an output of this encoding can carry bars, dashes and dots."""
    try:
        "━╸–…·".encode(encoding or "ascii")
    except UnicodeEncodeError:
        return False
    return True


def apart(value: float, limit: float, digits: int = 3) -> tuple[str, str]:
    """Return both numbers with as few decimals (at least `digits`) as show that they differ, if they do."""
    for decimals in range(digits, 17):
        pair = f"{value:.{decimals}f}", f"{limit:.{decimals}f}"
        if pair[0] != pair[1]:
            return pair
    return f"{value:.{digits}f}", f"{limit:.{digits}f}"


def number(value: float) -> str:
    """Up to four significant digits."""
    return f"{value:.4g}"


def money(usd: float | None, dash: str = "-") -> str:
    """US dollars, four decimals below one dollar."""
    if usd is None:
        return dash
    return f"${usd:.4f}" if usd < 1 else f"${usd:,.2f}"


def count(value: float | None, dash: str = "-") -> str:
    """Return a large count in three digits: 999, 12.3k, 1.2M."""
    if value is None:
        return dash
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if value >= size:
            return f"{value / size:.3g}{unit}"
    return f"{value:g}"


def seconds(value: float | None, dash: str = "-") -> str:
    """Return a duration: 8 ms, 3.1 s, 2:05, 1:02:03."""
    if value is None:
        return dash
    if value < 59.95:
        return f"{value * 1000:.0f} ms" if value < 0.9995 else f"{value:.1f} s"
    minutes, rest = divmod(round(value), 60)
    return f"{minutes // 60}:{minutes % 60:02d}:{rest:02d}" if minutes >= 60 else f"{minutes}:{rest:02d}"
