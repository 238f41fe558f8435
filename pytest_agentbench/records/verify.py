"""What a case declares about its verifiers: hidden files, and what decides it by them once the agent has ended."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import AfterValidator, Field, StrictInt, model_validator

from pytest_agentbench.records.base import Record, Slug
from pytest_agentbench.records.check_specs import Text


def _inside(path: str) -> str:
    if path.startswith("/") or "\0" in path or ".." in path.split("/") or not path.strip("/."):
        raise ValueError(f"found {path!r}, expected a path below the workspace, without `..`")
    return path


def _inside_or_itself(path: str) -> str:
    return path if path.strip("/") in ("", ".") and not path.startswith("/") else _inside(path)


InsidePath = Annotated[Text, AfterValidator(_inside)]
"""A path below the workspace, relative to it."""

InsideFolder = Annotated[Text, AfterValidator(_inside_or_itself)]
"""The same, or the workspace itself: `.`."""


def _test_id(text: str) -> str:
    _inside(text.partition("::")[0])
    return text


TestId = Annotated[Text, AfterValidator(_test_id)]
"""A file, folder or node id of pytest, relative to the workspace; a test function stands for all its parameters."""


class Expected(Record):
    """What a verifier's command must come to."""

    exit_code: StrictInt = 0
    """Its exit code."""
    output_contains: tuple[Text, ...] = ()
    """Texts that it prints, on stdout or stderr."""
    result: dict[str, Any] | None = None
    """What the JSON object that it writes to the file named by $AGENTBENCH_RESULT includes."""


class PytestTests(Record):
    """Tests that pytest runs. Each one that is named has to run and pass: none may be skipped, xfailed or missing."""

    fail_to_pass: tuple[TestId, ...] = ()
    """Tests that failed before the agent did its work."""
    pass_to_pass: tuple[TestId, ...] = ()
    """Tests that passed before and still have to."""
    tests: tuple[TestId, ...] = ()
    """Further files, folders or tests."""
    pythonpath: tuple[InsideFolder, ...] = (".",)
    """Folders of the workspace that the tests import from; they come after the standard library."""
    plugins: tuple[Text, ...] = ()
    """Modules of installed pytest plugins that the tests need; no other is loaded."""
    config: InsidePath | None = None
    """A pytest configuration file among `files` or of the template; default: none at all."""

    @model_validator(mode="after")
    def _some(self) -> Self:
        if not self.ids:
            raise ValueError("found no test, expected at least one of fail_to_pass, pass_to_pass and tests")
        return self

    @property
    def ids(self) -> tuple[str, ...]:
        """All that is named, each once."""
        return tuple(dict.fromkeys((*self.fail_to_pass, *self.pass_to_pass, *self.tests)))


class HiddenFile(Record):
    """A file or folder of the case's that is put at `target` in the workspace once the agent has stopped."""

    target: str
    source: Path


class Verifier(Record):
    """Decides a run by what it left. Exactly one of `command` (its argv) and `pytest` is set.

    `keep` are paths whose files stay as the agent left them although their names could steer Python or pytest. `apart`:
    what the agent left is in a sandbox of its own. `canary` is a folder with what is known to be wrong; None: the
    case's workspace as it is in the beginning.
    """

    check_id: Slug
    files: tuple[HiddenFile, ...] = ()
    command: tuple[str, ...] | None = None
    expected: Expected = Field(default_factory=Expected)
    pytest: PytestTests | None = None
    keep: tuple[str, ...] = ()
    apart: bool = False
    canary: Path | None = None
    timeout_seconds: float = 300.0
