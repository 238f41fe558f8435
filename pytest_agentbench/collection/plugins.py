"""Hooks by which a session's plugins and conftest files add things, and where what they return goes.

All of it goes one way: into the table of extensions, beside what packs have there, until the session ends. So whoever
looks a name up, in a file's validation or in an engine, finds a conftest's as it finds a pack's.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_agentbench.errors import ConfigError
from pytest_agentbench.extensions import SessionExtensions

if TYPE_CHECKING:
    from pytest_agentbench.config.session_roots import SessionRoots

EXTENSIONS = pytest.StashKey[SessionExtensions]()
ASKED = pytest.StashKey[list[tuple[str, object]]]()
"""Which plugins have been asked what, by the names of hooks."""
SOURCES, REPORT_SECTIONS = "case_sources", "report_sections"


@dataclass(frozen=True)
class Hook:
    """A hook `pytest_agentbench_NAME`. `what` is what people call one of its things.

    `ours` are the places of the names that this package has itself, each a mapping or a model. `kind` is the class
    whose instances are expected, or with `is_model` its subclasses; None: anything that can be called. What a hook
    `of_users` adds could loosen what holds for guests, so conftest files in their folders are not asked.
    """

    name: str
    seam: str
    what: str
    ours: tuple[str, ...] = ()
    kind: str | None = None
    is_model: bool = False
    of_users: bool = True

    @property
    def full_name(self) -> str:
        """Return its name in plugins."""
        return f"pytest_agentbench_{self.name}"


_RECORDS, _CONFIG = "pytest_agentbench.records", "pytest_agentbench.config"
_PROFILES = {
    "run_profile": f"{_CONFIG}.profiles:RunProfile",
    "evaluation_profile": f"{_CONFIG}.profiles:EvaluationProfile",
    "suite": f"{_CONFIG}.profiles:SuiteFile",
}
HOOKS = (
    Hook("runners", "runner", "runner", ("pytest_agentbench.runners.base:BUILTIN_RUNNERS",), of_users=False),
    Hook("tools", "tool", "tool", ("pytest_agentbench.tools.builtin:BUILTIN_TOOLS",), of_users=False),
    Hook("checks", "check", "check kind", ("pytest_agentbench.checks.run:BUILTIN_CHECKS",), of_users=False),
    Hook("metrics", "metric", "metric", ("pytest_agentbench.metrics.registry:METRICS",), of_users=False),
    Hook("judges", "judge", "judge type", of_users=False),
    Hook("graders", "grader", "grader", of_users=False),
    Hook("model_providers", "model_provider", "model provider", of_users=False),
    Hook(SOURCES, "source", "case source", of_users=False),
    Hook(
        "case_parts",
        "case_part",
        "part of cases",
        (f"{_RECORDS}.case:Case", f"{_CONFIG}.case_file:TestCaseFile"),
        f"{_RECORDS}.base:CasePart",
        is_model=True,
    ),
    Hook(
        "evaluation_parts",
        "evaluation_part",
        "part of evaluations",
        (f"{_RECORDS}.evaluation:Evaluation",),
        f"{_RECORDS}.base:Record",
        is_model=True,
    ),
    Hook("profile_sections", "", "section", kind=f"{_CONFIG}.sections:ProfileSection"),
    Hook("file_kinds", "file", "kind of file", (f"{_CONFIG}.sections:OWN_FOLDERS",), f"{_CONFIG}.sections:FileKind"),
    Hook(
        "sandboxes",
        "sandbox",
        "sandbox",
        (f"{_RECORDS}.base:SANDBOXES",),
        "pytest_agentbench.workspaces.sandboxes.base:SandboxProvider",
    ),
    Hook(
        REPORT_SECTIONS,
        "report_section",
        "section of reports",
        ("pytest_agentbench.reports.sections:own_keys",),
        "pytest_agentbench.reports.sections:ReportSection",
    ),
)
"""All hooks that return mappings, each asked once in a session."""


def ask_plugins(
    config: pytest.Config, roots: SessionRoots | None = None, only: Collection[str] | None = None
) -> list[str]:
    """Add what plugins return, and return what to tell of guests' conftest files that were not asked.

    `only` names hooks to ask now, None: all but those of sources, which are asked before anything is collected. No
    plugin is asked the same twice, so that conftest files which are loaded later can be asked later. Raises ConfigError
    for a name that is taken, and for what is no such thing.
    """
    if (extensions := config.stash.get(EXTENSIONS, None)) is None:
        extensions = config.stash[EXTENSIONS] = SessionExtensions()
        config.add_cleanup(extensions.close)
    before = config.stash.setdefault(ASKED, [])
    told: list[str] = []
    asked = {hook.name for hook in HOOKS} - {SOURCES} if only is None else only
    for hook in HOOKS:
        if hook.name not in asked:
            continue
        guests = dict(_guests(config, hook, roots)) if hook.of_users and roots is not None else {}
        for path, (_, plea) in guests.items():
            told.append(f"{path}: {hook.full_name} is not asked for what it adds; {plea}")
        others = [plugin for plugin, _ in guests.values()] + [plugin for name, plugin in before if name == hook.name]
        for given in config.pluginmanager.subset_hook_caller(hook.full_name, others)():
            _add(extensions, hook, given)
        before += [(hook.name, found.plugin) for found in getattr(config.hook, hook.full_name).get_hookimpls()]
    return told


def _guests(config: pytest.Config, hook: Hook, roots: SessionRoots) -> Iterator[tuple[Path, tuple[object, str]]]:
    """Yield the conftest files with the hook that lie in guests' folders, each with its plugin and what a user can do.

    Such a file is code that pytest runs, and could do anything: this keeps only what it adds from passing for the
    user's word, where a guest's profile names a sandbox that the guest brings itself.
    """
    for found in getattr(config.hook, hook.full_name).get_hookimpls():
        path = Path(found.plugin_name)
        # pytest registers a conftest by its path, other plugins by the name of their module.
        if path.name == "conftest.py" and (guest := roots.of(path).guest) is not None:
            yield path, (found.plugin, guest.remedy)


def _add(extensions: SessionExtensions, hook: Hook, given: Any) -> None:
    if not isinstance(given, Mapping):
        raise ConfigError(
            f"a plugin's hook for {hook.name.replace('_', ' ')} returned {type(given).__name__}, expected a mapping"
        )
    for name, thing in given.items():
        problem = "None" if thing is None else _misfit(hook, name, thing)
        if problem is not None:
            raise ConfigError(f"a plugin adds the {hook.what} {name!r} as {problem}")
        seam = hook.seam or thing.of
        places = hook.ours if hook.seam else (_PROFILES[seam],)
        ours = {each for place in places for each in _names(_find(place))}
        extensions.add(seam, name, thing, what=hook.what, ours=ours)


def _misfit(hook: Hook, name: str, thing: Any) -> str | None:
    """Return what a thing is that a hook cannot take, and what is expected; None where it is one."""
    if hook.kind is None:
        return None
    kind = _find(hook.kind)
    fits = isinstance(thing, type) and issubclass(thing, kind) if hook.is_model else isinstance(thing, kind)
    if not fits:
        expected = f"a subclass of {kind.__name__}" if hook.is_model else f"a {kind.__name__}"
        return f"{getattr(thing, '__name__', type(thing).__name__)}, expected {expected}"
    if not hook.seam and thing.of not in _PROFILES:
        return f"one of {thing.of!r}, expected one of {', '.join(_PROFILES)}"
    own = {"": "name", "file": "folder"}.get(hook.seam)
    if own is not None and getattr(thing, own) != name:
        return f"one that calls itself {getattr(thing, own)!r}, expected the same name"
    return None


def _find(place: str) -> Any:
    module, _, name = place.partition(":")
    return getattr(import_module(module), name)


def _names(found: Any) -> Collection[str]:
    if isinstance(found, type):
        return found.model_fields  # type: ignore[attr-defined,no-any-return]
    return found() if callable(found) else found  # type: ignore[no-any-return]
