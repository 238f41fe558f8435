"""Dockerfiles of cases: what they have fetched while an image is built, told without building."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path

from pytest_agentbench.bounded import MAX_TEXT, read_file

_DIRECTIVE = re.compile(r"#\s*([A-Za-z][A-Za-z0-9]*)\s*=\s*(.+?)\s*")
_NO_PLAIN_PATH = re.compile(r"[:@$\\]")
_VARIABLE = re.compile(r"\$(?:(?P<plain>\w+)|\{(?P<name>\w+)(?:(?P<sign>:?[-+])(?P<word>[^${}]*))?\})")


def base_images(dockerfile: Path) -> list[str]:
    """The images that it starts from or copies from; not its own stages, nor `scratch`.

    Variables are filled in as in a build without `--build-arg`. One that has no value there stays as it is.
    """
    found, stages, given = [], {"scratch"}, dict[str, str]()
    began = False
    for name, rest in _instructions(dockerfile):
        words = rest.split()
        if name == "ARG" and not began:  # those of a stage are none of FROM's
            given |= _defaults(rest, given)
        elif name == "FROM":
            began = True
            words = _filled(rest, given).replace('"', "").split()
            image, *alias = [word for word in words if not word.startswith("--")] or [""]
            found += [] if image.lower() in stages else [image]
            stages |= {word.lower() for word in alias[1:2]}
        elif name == "COPY":
            sources = [word.removeprefix("--from=") for word in words if word.startswith("--from=")]
            found += [each for each in sources if not each.isdigit() and each.lower() not in stages]
    return found


def downloads(dockerfile: Path) -> list[str]:
    """Its ADD instructions that name no plain path: the daemon fetches URLs, whatever network the build has."""
    return [each for each in additions(dockerfile) if _NO_PLAIN_PATH.search(each)]


def additions(dockerfile: Path) -> list[str]:
    """Its ADD instructions, each of which may unpack archives."""
    return [f"ADD {rest}" for name, rest in _instructions(dockerfile) if name == "ADD"]


def _defaults(rest: str, given: Mapping[str, str]) -> dict[str, str]:
    """What an ARG gives its variables: those with a default."""
    try:
        words = shlex.split(_filled(rest, given))
    except ValueError:  # a quotation without an end, which docker refuses
        return {}
    return {name: value for name, sign, value in (word.partition("=") for word in words) if sign}


def _filled(text: str, given: Mapping[str, str]) -> str:
    """The text with the values of its variables, `${NAME:-word}` and its kind too; what has none stays."""

    def value(match: re.Match[str]) -> str:
        name, sign, word = match["plain"] or match["name"], match["sign"] or "", match["word"] or ""
        has = bool(given.get(name)) if sign.startswith(":") else name in given
        if sign.endswith("+"):
            return word if has else ""
        return given[name] if has else word if sign else match[0]

    return _VARIABLE.sub(value, text)


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
