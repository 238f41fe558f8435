"""Stand-ins for the case parts, profile sections and sandboxes of conftest files, which commands do not import.

Without them, a command would report a file that a session reads: its field or its sandbox would be unknown.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

from pydantic import ConfigDict

from pytest_agentbench.cli.additions import conftests_above, conftests_below, list_declared
from pytest_agentbench.config.sections import ProfileSection
from pytest_agentbench.config.session_roots import SessionRoots
from pytest_agentbench.extensions import SessionExtensions, extension_names
from pytest_agentbench.records.base import CasePart
from pytest_agentbench.seams import FIELDS, PROFILES, SEAMS

_SEAMS = {
    "profile_sections": PROFILES,  # only a session knows which of them
    **{field: (seam.key,) for field, seam in FIELDS.items() if seam.key in ("case_part", "sandbox", *PROFILES)},
}
"""The seams of stand-ins by fields of a Pack and names of hooks."""


class UnreadPart(CasePart):
    """A part of a case with any fields, which a session validates."""

    model_config = ConfigDict(extra="allow")
    is_section: ClassVar[bool] = True


@contextmanager
def known_from_conftests(paths: Sequence[Path], roots: SessionRoots) -> Iterator[None]:
    """Accept inside the block the names that conftest files above and below the paths add in plain sight.

    That is a hook that returns mappings with literal keys, `return {"card": Card}`, or a Pack that has such mappings.
    Conftest files of guests are left out, because a session does not ask them either.
    """
    extensions = SessionExtensions()
    try:
        for conftest in dict.fromkeys(_list_conftests(paths)):
            if conftest.is_file() and roots.of(conftest).guest is None:
                _add_stand_ins(extensions, conftest)
        yield
    finally:
        extensions.close()


def _list_conftests(paths: Iterable[Path]) -> Iterator[Path]:
    for path in paths:
        yield from conftests_above(path if path.is_dir() else path.parent)
        if path.is_dir():
            yield from conftests_below(path)


def _add_stand_ins(extensions: SessionExtensions, conftest: Path) -> None:
    for field, names in list_declared(conftest).items():
        for seam in _SEAMS.get(field, ()):
            for name in names - extension_names(seam) - SEAMS[seam].own_names():  # which a session refuses
                extensions.add(seam, name, _make_stand_in(seam, name), str(conftest))


def _make_stand_in(seam: Any, name: str) -> object:
    if seam == "case_part":
        return UnreadPart
    if seam == "sandbox":
        return _make_sandbox()
    return ProfileSection(name, seam, Any, "", default=lambda: None, excess=lambda section, most, guest: ())


def _make_sandbox() -> object:
    # Only here, because a folder without such a conftest needs nothing that starts sandboxes
    from pytest_agentbench.workspaces.sandboxes.base import SandboxProvider

    class UnreadSandbox(SandboxProvider):
        """A sandbox that no command can start."""

        # Unknown here, and a wrong "none" would refuse files of guests that a session runs
        isolation = "machine"

        def problem(self) -> str:
            return "a conftest.py adds it, which only a session loads"

    return UnreadSandbox()
