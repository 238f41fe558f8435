"""Types of commands' arguments that options of pytest have, too. They are imported at the first use, with pytest."""

from __future__ import annotations


def parse_positive(text: str) -> int:
    """Return a whole number of at least 1. Raises ArgumentTypeError."""
    from pytest_agentbench.options import parse_positive

    return parse_positive(text)


def parse_fraction(text: str) -> float:
    """Return a fraction from 0 to 1. Raises ArgumentTypeError."""
    from pytest_agentbench.options import parse_fraction

    return parse_fraction(text)
