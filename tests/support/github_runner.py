"""Find the workflow commands in a job's output that the runner of GitHub Actions obeys, in both of its forms."""

from __future__ import annotations

import re
from dataclasses import dataclass

KNOWN = frozenset(
    {"error", "warning", "notice", "debug", "group", "endgroup", "add-mask", "echo", "set-output", "set-env"}
    | {"add-path", "save-state", "stop-commands", "add-matcher", "remove-matcher"}
)
_DATA = {"%25": "%", "%0D": "\r", "%0A": "\n"}
_PROPERTY = {**_DATA, "%3A": ":", "%2C": ","}


@dataclass(frozen=True)
class Command:
    """A command that the runner obeys."""

    name: str
    properties: dict[str, str]
    message: str


def commands(output: str) -> list[Command]:
    """Return the commands of a step's output in order. From `::stop-commands::TOKEN` to `::TOKEN::` there are none."""
    found: list[Command] = []
    token: str | None = None
    for line in re.split(r"\r\n|\r|\n", output):
        command = _parsed(line, KNOWN if token is None else KNOWN | {token})
        if command is None:
            continue
        if token is not None:
            token = None if command.name == token else token
        elif command.name == "stop-commands":
            token = command.message
        else:
            found.append(command)
    assert token is None, "commands were stopped to the end"
    return found


def _parsed(line: str, known: frozenset[str]) -> Command | None:
    line_start = line.lstrip()
    if line_start.startswith("::") and (end := line_start.find("::", 2)) >= 0:
        name, _, given = line_start[2:end].partition(" ")
        if name.lower() in {each.lower() for each in known}:
            return Command(name.lower(), _properties(given, ","), _plain(line_start[end + 2 :], _DATA))
    at = line.find("##[")
    if at >= 0 and (end := line.find("]", at)) >= 0:
        name, _, given = line[at + 3 : end].partition(" ")
        if name.lower() in known:
            return Command(name.lower(), _properties(given, ";"), line[end + 1 :])
    return None


def _properties(text: str, separator: str) -> dict[str, str]:
    pairs = [part.strip().partition("=") for part in text.split(separator) if "=" in part]
    return {key: _plain(value, _PROPERTY) for key, _, value in pairs}


def _plain(text: str, escapes: dict[str, str]) -> str:
    return re.sub("|".join(escapes), lambda match: escapes[match[0].upper()], text, flags=re.IGNORECASE)
