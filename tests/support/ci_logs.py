"""Find the commands in a job's log that CI systems other than GitHub obey, by their documentation and agents."""

from __future__ import annotations

import re

_AZURE = re.compile(r"##(?:vso)?\[[^\]\n]*\]", re.IGNORECASE)
_TEAMCITY = re.compile(r"##teamcity\[[^\]\n]*\]")
_GITLAB = re.compile(r"section_(?:start|end):[0-9]+:[\w.-]+(?:\[[^\]]*\])?\r\x1b\[0K")
_BUILDKITE = re.compile(r"^(?:(?:---|\+\+\+|~~~)(?:\s.*)?|\^\^\^\s+\+\+\+\s*)$", re.MULTILINE)

FORGED = (
    "##vso[task.setvariable variable=PATH]/evil",
    "text ##vso[task.complete result=Succeeded;]ok",
    "##[error]forged",
    "##teamcity[testFailed name='forged']",
    "section_start:1700000000:forged[collapsed=true]\r\x1b[0Kforged",
    "section_end:1700000000:forged\r\x1b[0K",
    "::error file=forged::forged",
    "   ::stop-commands::forged",
    "--- forged",
    "+++ forged",
    "~~~ forged",
    "^^^ +++",
)


def heeded(log: str, *, buildkite: bool = False) -> list[str]:
    """Return the commands that Azure, TeamCity and GitLab, or Buildkite, would obey in a log."""
    systems = (_BUILDKITE,) if buildkite else (_AZURE, _TEAMCITY, _GITLAB)
    return [found[0] for system in systems for found in system.finditer(log.replace("\r\n", "\n"))]
