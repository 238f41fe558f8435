"""Dockerfiles of cases: what they have fetched while an image is built, told without building."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from pytest_agentbench.bounded import MAX_TEXT, read_file

_DIRECTIVE = re.compile(r"#\s*([A-Za-z][A-Za-z0-9]*)\s*=\s*(.+?)\s*")
_NO_PLAIN_PATH = re.compile(r"[:@$\\]")


def base_images(dockerfile: Path) -> list[str]:
    """The images that it starts from or copies from, as they stand there; not its own stages, nor `scratch`."""
    found, stages = [], {"scratch"}
    for name, rest in _instructions(dockerfile):
        words = rest.split()
        if name == "FROM":
            image, *alias = [word for word in words if not word.startswith("--")] or [""]
            found += [] if image.lower() in stages else [image]
            stages |= {word.lower() for word in alias[1:2]}
        elif name == "COPY":
            sources = [word.removeprefix("--from=") for word in words if word.startswith("--from=")]
            found += [each for each in sources if not each.isdigit() and each.lower() not in stages]
    return found


def downloads(dockerfile: Path) -> list[str]:
    """Its ADD instructions that name no plain path: the daemon fetches URLs, whatever network the build has."""
    return [f"ADD {rest}" for name, rest in _instructions(dockerfile) if name == "ADD" and _NO_PLAIN_PATH.search(rest)]


def _instructions(dockerfile: Path) -> Iterator[tuple[str, str]]:
    """Name, in capitals, and arguments of each; what ONBUILD puts off counts as if it stood there."""
    lines = read_file(dockerfile, MAX_TEXT).decode("utf-8-sig", "replace").split("\n")
    escape = re.escape(_escape(lines))
    kept = [line for line in lines if line.strip() and not line.lstrip().startswith("#")]
    for line in re.sub(rf"{escape}[ \t\r]*\n", "", "\n".join(kept)).split("\n"):
        name, _, rest = re.sub(r"\s+", " ", line).strip().partition(" ")
        while name.upper() == "ONBUILD":
            name, _, rest = rest.partition(" ")
        yield name.upper(), rest


def _escape(lines: list[str]) -> str:
    """What continues a line: a backslash, unless a directive at the top says another."""
    for line in lines:
        directive = _DIRECTIVE.fullmatch(line.strip())
        if directive is None:
            break
        if directive[1].lower() == "escape":
            return directive[2]
    return "\\"
