"""Hooks by which a session's plugins and conftest files add things.

All hooks fill the registry of extensions, which contains the packs' things too, until the session ends. So a look-up by
name finds a conftest's thing in the same way as a pack's, in the validation of files and in the engine.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_agentbench.errors import ConfigError
from pytest_agentbench.extensions import Registration, SessionExtensions
from pytest_agentbench.seams import FIELDS, PROFILES, SEAMS, Seam

if TYPE_CHECKING:
    from pytest_agentbench.config.base import Guest
    from pytest_agentbench.config.session_roots import SessionRoots

_PACKS, _SECTIONS, _SOURCES = "packs", "profile_sections", "case_sources"
_HOOKS = (_PACKS, _SECTIONS, *FIELDS)
"""Names of hooks, without `pytest_agentbench_`. A few fields of packs have no hook."""
_OF_USERS = {_SECTIONS, *(name for name, seam in FIELDS.items() if seam.of_users)}


@dataclass
class Additions:
    """The things that plugins added to a session, the plugins that each hook has asked, and warnings."""

    extensions: SessionExtensions = field(default_factory=SessionExtensions)
    asked: list[tuple[str, object]] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


ADDITIONS = pytest.StashKey[Additions]()


@dataclass(frozen=True)
class Thing:
    """A thing that a hook returned, by seam and name. `owner` is its pack or file in messages."""

    seam: Seam
    name: str
    value: object
    owner: str


def ask_plugins(
    config: pytest.Config, roots: SessionRoots | None = None, only: Collection[str] | None = None
) -> list[str]:
    """Add the things that plugins return. Return all warnings so far about things of guests that are ignored.

    `only` names the hooks to ask; None means all except the hook of sources, which is asked before collection. Each
    hook asks a plugin once, so that conftest files loaded later can be asked later. Raises ConfigError for a name that
    exists already, and for an invalid thing.
    """
    if (additions := config.stash.get(ADDITIONS, None)) is None:
        additions = config.stash[ADDITIONS] = Additions()
        config.add_cleanup(additions.extensions.close)
    for hook in (name for name in _HOOKS if name != _SOURCES) if only is None else only:
        for owner, result in _call(config, hook, roots, additions):
            guest = _find_guest(owner, roots)
            for thing in _list_things(hook, owner, result):
                if guest is not None and thing.seam.of_users:
                    additions.warnings.append(_describe_ignored(owner, f"the {thing.seam.what} {thing.name!r}", guest))
                else:
                    additions.extensions.add(thing.seam.key, thing.name, thing.value, thing.owner)
    return additions.warnings


def _call(
    config: pytest.Config, hook: str, roots: SessionRoots | None, additions: Additions
) -> Iterator[tuple[str, Any]]:
    """Yield the names of plugins that were not asked before, with what their hook returns."""
    full_name = f"pytest_agentbench_{hook}"
    if (caller := getattr(config.hook, full_name, None)) is None:
        return
    implementations = caller.get_hookimpls()
    for implementation in reversed(implementations):  # in the order in which pytest calls them
        plugin, owner = implementation.plugin, implementation.plugin_name
        if (hook, plugin) in additions.asked:
            continue
        additions.asked.append((hook, plugin))
        if hook in _OF_USERS and (guest := _find_guest(owner, roots)) is not None:
            additions.warnings.append(_describe_ignored(owner, full_name, guest))
            continue
        others = [each.plugin for each in implementations if each.plugin is not plugin]
        for result in config.pluginmanager.subset_hook_caller(full_name, others)():
            yield owner, result


def _find_guest(owner: str, roots: SessionRoots | None) -> Guest | None:
    """Return the guest in whose folder a plugin is a conftest.py, or None.

    pytest runs such a file anyway. This only keeps its additions from counting as the user's, for example a sandbox
    that the guest's own profile names.
    """
    path = Path(owner)  # pytest registers a conftest by its path, other plugins by the name of their module
    if roots is None or path.name != "conftest.py":
        return None
    return roots.of(path).guest


def _describe_ignored(owner: str, ignored: str, guest: Guest) -> str:
    return f"{owner}: {ignored} is ignored in a folder that is not trusted; {guest.remedy}"


def _list_things(hook: str, owner: str, result: Any) -> Iterator[Thing]:
    if hook == _PACKS:
        yield from _list_packs(owner, result)
    elif not isinstance(result, Mapping):
        raise ConfigError(f"{owner}: pytest_agentbench_{hook} returned {type(result).__name__}, expected a mapping")
    elif hook == _SECTIONS:
        for name, value in result.items():
            kind = getattr(value, "of", None)
            yield Thing(SEAMS[kind if kind in PROFILES else PROFILES[0]], name, value, owner)
    else:
        for name, value in result.items():
            yield Thing(FIELDS[hook], name, value, owner)


def _list_packs(owner: str, packs: Any) -> Iterator[Thing]:
    if not isinstance(packs, list | tuple) or not all(isinstance(pack, Registration) for pack in packs):
        raise ConfigError(f"{owner}: pytest_agentbench_packs returned {packs!r}, expected a list of Pack")
    for pack in packs:
        for name, things in pack.fields.items():
            for thing, value in things.items():
                yield Thing(FIELDS[name], thing, value, f"the pack {pack.name!r} of {owner}")
