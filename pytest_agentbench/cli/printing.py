"""What commands print of files that others wrote."""

from __future__ import annotations


def printable(text: str) -> str:
    """One line without control characters: a file must not steer the terminal."""
    return "".join(character if character.isprintable() else "?" for character in text)
