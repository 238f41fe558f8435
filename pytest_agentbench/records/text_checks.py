"""Kinds of checks that compare the answer with a text: imported for the first case that has one."""

from typing import Literal

from pytest_agentbench.records.base import Record, Text


class _OfText(Record):
    text: Text
    """The text, not a pattern."""
    path: Text | None = None
    """A file to look at instead of the final output: in the workspace, else in the case's folder."""


class Contains(_OfText):
    """The final output, or the file `path`, contains `text`, case-sensitively."""

    kind: Literal["contains"]


class IContains(_OfText):
    """The final output, or the file `path`, contains `text` in capital or small letters."""

    kind: Literal["icontains"]


class NotContains(_OfText):
    """The final output, or the file `path`, does not contain `text`, case-sensitively."""

    kind: Literal["not_contains"]


class StartsWith(_OfText):
    """The final output, or the file `path`, starts with `text`, case-sensitively."""

    kind: Literal["starts_with"]


class Equals(_OfText):
    """The final output, or the file `path`, is exactly `text`, white space included."""

    kind: Literal["equals"]
