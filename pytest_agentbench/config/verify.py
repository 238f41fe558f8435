"""`verify` of a test.yaml: hidden files, and what decides the case by them after the agent has stopped."""

from __future__ import annotations

import os
from collections.abc import Collection
from typing import Annotated, Any, Self

from pydantic import AfterValidator, Discriminator, Field, StrictBool, Tag, ValidationInfo, model_validator

from pytest_agentbench.config.base import Problems, resolve_folder, resolve_path, scope_of
from pytest_agentbench.config.documents import Loc
from pytest_agentbench.records import Expected, InsidePath, PytestTests, Record, Seconds, Slug, Text


def _kind(value: Any) -> str:
    return "list" if isinstance(value, list | tuple) else "one"


def _existing(source: str, info: ValidationInfo) -> str:
    scope = scope_of(info)
    if scope is not None and not os.path.exists(real := resolve_path(source, scope)):
        raise ValueError(f"found {source!r}, expected an existing file or folder; there is none at {real}")
    return source


def _existing_folder(source: str, info: ValidationInfo) -> str:
    scope = scope_of(info)
    if scope is not None:
        resolve_folder(source, scope)
    return source


def _some(given: tuple[Any, ...]) -> tuple[Any, ...]:
    if not given:
        raise ValueError("found an empty list, expected at least one element")
    return given


HiddenFiles = dict[InsidePath, Annotated[Text, AfterValidator(_existing)]]
"""What lies where in the workspace, to what it is a copy of, relative to test.yaml."""

Command = Annotated[
    Annotated[Text, Tag("one")] | Annotated[tuple[Text, ...], AfterValidator(_some), Tag("list")], Discriminator(_kind)
]
"""A program with its arguments; or one text, for `/bin/sh -c`."""


class CaseVerifier(Record):
    """Decides the case by what the agent left. It runs in a sandbox of its own, on a copy of the workspace."""

    check_id: Slug | None = None
    """What reports call it; default: verify, or verify_2, verify_3 ... from the second on."""
    files: HiddenFiles = Field(default_factory=dict)
    """Files and folders that the agent never sees: target in the workspace, and source relative to test.yaml."""
    command: Command | None = None
    """What is run in the workspace: a program with its arguments, or a text for /bin/sh."""
    expected: Expected | None = None
    """What the command must come to; default: exit code 0."""
    pytest: PytestTests | None = None
    """Tests that pytest runs instead of a command."""
    keep: tuple[InsidePath, ...] = ()
    """Files of the agent's that stay although their names steer Python or pytest, such as pyproject.toml."""
    apart: StrictBool = False
    """The verifier sees the hidden files only, and asks for what the solution does, which has a sandbox of its own."""
    canary: Annotated[Text, AfterValidator(_existing_folder)] | None = None
    """A folder with a solution that is known to be wrong, relative to test.yaml, for `agentbench validate --canary`;
    default: the case's workspace as it is in the beginning."""
    timeout_seconds: Seconds = 300.0
    """How long it may run."""

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        if (self.command is None) == (self.pytest is None):
            found = "neither" if self.command is None else "both"
            raise ValueError(f"found {found} of 'command' and 'pytest', expected exactly one")
        if self.pytest is not None and self.expected is not None:
            raise Problems([(("expected",), "belongs to 'command'; 'pytest' itself names what has to pass")])
        if self.apart and self.keep:
            raise Problems([(("keep",), "keeps files of the agent's, of which a verifier that is apart sees none")])
        return self


Verify = Annotated[
    Annotated[CaseVerifier, Tag("one")] | Annotated[tuple[CaseVerifier, ...], AfterValidator(_some), Tag("list")],
    Discriminator(_kind),
]
"""One verifier, or a list of them."""


def named_verifiers(verify: Verify | None) -> tuple[CaseVerifier, ...]:
    """All of them, each with its check_id."""
    given = (verify,) if isinstance(verify, CaseVerifier) else verify or ()
    names = ("verify", *(f"verify_{number}" for number in range(2, len(given) + 1)))
    return tuple(
        each.model_copy(update={"check_id": each.check_id or name}) for each, name in zip(given, names, strict=False)
    )


def verify_problems(verify: Verify | None, taken: Collection[str]) -> list[tuple[Loc, str]]:
    """A problem for each verifier whose check_id another one has, or a check of the case (`taken`)."""
    seen = set(taken)
    found: list[tuple[Loc, str]] = []
    for index, verifier in enumerate(named_verifiers(verify)):
        if verifier.check_id in seen:
            at: Loc = () if isinstance(verify, CaseVerifier) else (index,)
            found.append(((*at, "check_id"), f"Duplicate check_id {verifier.check_id!r}; each must be unique"))
        seen.add(verifier.check_id or "")
    return found
