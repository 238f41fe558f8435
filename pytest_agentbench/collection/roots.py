"""The configuration roots of a pytest session: the same in its controller and its workers."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pytest_agentbench.config.folders import is_inside
from pytest_agentbench.config.grants import written_folders
from pytest_agentbench.config.root_search import NamedRoot, find_user_folder, search_root
from pytest_agentbench.config.session_roots import SessionRoots, decide_roots
from pytest_agentbench.errors import ConfigError
from pytest_agentbench.options import Settings
from pytest_agentbench.sources.discovery import has_cases
from pytest_agentbench.terminal_text import visible_line

ROOTS = pytest.StashKey[SessionRoots]()
SENT = "agentbench_roots"
"""The name under which a worker gets its controller's roots."""
START = "agentbench_start"
"""The name under which a worker gets the folder that its controller was started in."""


def session_roots(config: pytest.Config, settings: Settings) -> SessionRoots:
    """Return the session's configuration roots, decided once. A worker uses the roots of its controller.

    Raises `pytest.UsageError` if a pytest file or the user's grants cannot be read.
    """
    if ROOTS not in config.stash:
        told = getattr(config, "workerinput", {})
        try:
            config.stash[ROOTS] = SessionRoots.unpack(told[SENT]) if SENT in told else _decide_roots(config, settings)
        except ConfigError as error:
            raise pytest.UsageError(str(error)) from None
        if trusted := config.stash[ROOTS].trust.folders:
            from pytest_agentbench.config.source_imports import import_sources_below

            config.add_cleanup(import_sources_below(trusted))
    return config.stash[ROOTS]


def _decide_roots(config: pytest.Config, settings: Settings) -> SessionRoots:
    start = Path(getattr(config, "workerinput", {}).get(START, config.invocation_params.dir))
    asked = [start / argument.partition("::")[0] for argument in config.args]
    named = NamedRoot(settings.configs, settings.trust) if settings.names_root else None
    trusted = settings.trust
    if settings.added_trust and config.inipath is not None:
        # From `addopts` of a pytest file: a guest's may not trust the guest.
        search = search_root(asked, start, named)
        inner = search.own or find_user_folder(os.path.abspath(asked[0]), str(start), search.tops[0])
        trusted += settings.added_trust if is_inside(str(inner), str(config.inipath.parent)) else ()
    written = written_folders(config.rootpath, settings.output)
    return decide_roots(asked, start, named, trusted=trusted, written=written, has_cases=has_cases)


def describe_roots(config: pytest.Config, settings: Settings) -> list[str]:
    """Return lines that name the session's root, and a pytest file of a guest's that pytest obeys.

    A session without configuration has no root to name.
    """
    roots = session_roots(config, settings)
    if roots.own is None and not roots.reason:
        return []
    lines = [f"agentbench: configuration root: {roots.describe()}"]
    if config.inipath is not None and not settings.names_root and roots.of(config.inipath).is_guest:
        advice = "its agentbench_configs and agentbench_trust are ignored; name another file by -c"
        lines.append(f"agentbench: pytest is configured by {config.inipath} in a guest's folder: {advice}")
    return [visible_line(line) for line in lines]
