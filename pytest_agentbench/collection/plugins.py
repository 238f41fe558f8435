"""Hooks by which a session's plugins and conftest files add things.

All hooks fill the table of extensions, which contains the packs' things too, until the session ends. So a look-up by
name finds a conftest's thing in the same way as a pack's, in the validation of files and in the engine.
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
"""Pairs of a hook's name and a plugin that was asked by it."""
SOURCES, REPORT_SECTIONS = "case_sources", "report_sections"


@dataclass(frozen=True)
class Hook:
    """A hook `pytest_agentbench_NAME`. `what` is the name of one of its things in messages.

    `ours` are the places of the names that this package has itself, each a mapping or a model. `kind` is the class
    of valid instances, or with `is_model` of valid subclasses; None allows any callable. Conftest files in folders of
    guests are not asked by a hook `of_users`, because its things could loosen the limits of guests.
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
    Hook(
        "tools",
        "tool",
        "tool",
        ("pytest_agentbench.tools.builtin:BUILTIN_TOOLS",),
        "pytest_agentbench.tools.base:Tool",
        of_users=False,
    ),
    Hook("checks", "check", "check kind", ("pytest_agentbench.checks.run:BUILTIN_CHECKS",), of_users=False),
    Hook("metrics", "metric", "metric", ("pytest_agentbench.metrics.registry:METRICS",), of_users=False),
    Hook("judges", "judge", "judge type", of_users=False),
    Hook("graders", "grader", "grader", kind="pytest_agentbench.engine.grading:Grader", of_users=False),
    Hook("drivers", "driver", "driver", of_users=False),
    Hook("model_providers", "model_provider", "model provider", of_users=False),
    Hook(SOURCES, "source", "case source", kind="pytest_agentbench.sources.case_source:CaseSource", of_users=False),
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
        (f"{_RECORDS}.base:NO_KINDS",),
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
    """Add the things that plugins return. Return warnings about conftest files of guests that were not asked.

    `only` names the hooks to ask; None means all except the hook of sources, which is asked before collection. Each
    hook asks a plugin once, so that conftest files loaded later can be asked later. Raises ConfigError for a name that
    exists already, and for an invalid thing.
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
        for path, (_, remedy) in guests.items():
            told.append(f"{path}: {hook.full_name} is ignored in a folder that is not trusted; {remedy}")
        others = [plugin for plugin, _ in guests.values()] + [plugin for name, plugin in before if name == hook.name]
        for given in config.pluginmanager.subset_hook_caller(hook.full_name, others)():
            _add(extensions, hook, given)
        before += [(hook.name, found.plugin) for found in getattr(config.hook, hook.full_name).get_hookimpls()]
    return told


def _guests(config: pytest.Config, hook: Hook, roots: SessionRoots) -> Iterator[tuple[Path, tuple[object, str]]]:
    """Yield the conftest files of guests that have the hook, each with its plugin and the remedy.

    pytest runs such a file anyway. This only keeps its additions from counting as the user's, for example a sandbox
    that the guest's own profile names.
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
    """Return the actual and the expected type of an invalid thing; None if it is valid."""
    if hook.kind is None:
        return None if callable(thing) else f"{type(thing).__name__}, expected a callable"
    kind = _find(hook.kind)
    fits, expected = isinstance(thing, kind), f"a {kind.__name__}"
    if hook.is_model:
        fits, expected = isinstance(thing, type) and issubclass(thing, kind), f"a subclass of {kind.__name__}"
    if not fits:
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
    if callable(found):
        return found()  # type: ignore[no-any-return]
    return found  # type: ignore[no-any-return]
