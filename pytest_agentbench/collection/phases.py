"""The hooks of an item's phases, without pytest's guards where only this plugin's code runs."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

from pytest_agentbench.engine.driver import JOB, RUN_FIXTURES, RunAhead

_FIXTURES = frozenset({*RUN_FIXTURES, "request"})
_LOGS = "logging-plugin"
_GUARDS = ("capturemanager", _LOGS)
"""Plugins of pytest that put streams and handlers in place for each phase, and take them away again."""
_COLLECTORS = ("unraisableexception", "threadexception")
"""Plugins of pytest that look after each phase for exceptions that nobody could catch; after the last one is enough."""
_HOOKS = ("pytest_runtest_setup", "pytest_runtest_call", "pytest_runtest_teardown")
_SILENT = {"_hypothesis_pytestplugin", "_pytest", "anyio", "pytest_agentbench", "pytest_asyncio", "pytest_cov"}
_SILENT |= {"pytest_rerunfailures", "pytest_timeout", "xdist"}
"""Top-level modules whose hooks of these names print and log nothing."""


class _Quiet(NamedTuple):
    """The session's hooks without guards, and the logging plugin's alone."""

    setup: Any
    call: Any
    teardown: Any
    begin_logs: Any


_QUIET = pytest.StashKey["_Quiet | None"]()
"""None where every phase is to be guarded."""


class Phases:
    """The hooks of a file's items, as `Node.ihook` has them.

    Most items find their run ended: they make no fixture, take the result and compare it. Nothing that prints or logs
    runs meanwhile, and what agents print and log belongs to their runs. Guarding three such phases costs an eighth of
    the CPU of a session with 3,000 items whose agent answers at once.
    """

    def __init__(self, config: pytest.Config, hooks: Any, ahead: RunAhead) -> None:
        if _QUIET not in config.stash:
            config.stash[_QUIET] = _find_quiet(config)
        self._hooks, self._ahead, self._quiet = hooks, ahead, config.stash[_QUIET]
        self._unguarded: pytest.Item | None = None

    def __getattr__(self, name: str) -> Any:
        hook = self.__dict__[name] = getattr(self._hooks, name)  # the next look finds it at once
        return hook

    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Set the item up; without guards where its run has ended and its fixtures are made."""
        __tracebackhide__ = True
        if self._quiet is not None and self._is_ready(item):
            self._unguarded = item
            self._quiet.setup(item=item)
        else:
            self._unguarded = None
            self._hooks.pytest_runtest_setup(item=item)

    def pytest_runtest_call(self, item: pytest.Item) -> None:
        """Compare its result."""
        __tracebackhide__ = True
        quiet = self._quiet if self._unguarded is item else None
        (self._hooks.pytest_runtest_call if quiet is None else quiet.call)(item=item)

    def pytest_runtest_teardown(self, item: pytest.Item, nextitem: pytest.Item | None) -> None:
        """Tear down what it has set up; with guards where that may be the file's fixtures, too."""
        __tracebackhide__ = True
        quiet = self._quiet if self._unguarded is item else None
        if quiet is not None and nextitem is not None and nextitem.parent is item.parent:
            quiet.teardown(item=item, nextitem=nextitem)
            return
        if quiet is not None:  # -x has ended the session, or a worker goes on elsewhere
            quiet.begin_logs(item=item)
        self._hooks.pytest_runtest_teardown(item=item, nextitem=nextitem)

    def _is_ready(self, item: Any) -> bool:
        made = item.place in self._ahead.fixtures and _FIXTURES.issuperset(item.fixturenames)
        return made and item not in self._ahead.last and self._ahead.engine.has_ended(item.stash[JOB])


def _find_quiet(config: pytest.Config) -> _Quiet | None:
    hooks = [hook for name in _HOOKS for hook in getattr(config.hook, name).get_hookimpls()]
    if (
        any(getattr(hook.function, "__module__", "").partition(".")[0] not in _SILENT for hook in hooks)
        or any(config.getoption(name, False) for name in ("usepdb", "trace", "setuponly"))
        or _shows_logs(config)
    ):
        return None
    plugins = config.pluginmanager

    def without(hook: str, *names: str) -> Any:
        return plugins.subset_hook_caller(hook, filter(None, map(plugins.get_plugin, names)))

    logs = plugins.get_plugin(_LOGS)
    return _Quiet(
        without(_HOOKS[0], *_GUARDS, *_COLLECTORS),
        without(_HOOKS[1], *_GUARDS, *_COLLECTORS),
        without(_HOOKS[2], *_GUARDS),
        plugins.subset_hook_caller(_HOOKS[0], [each for each in plugins.get_plugins() if each is not logs]),
    )


def _shows_logs(config: pytest.Config) -> bool:
    """Return whether pytest writes logs as they come, to the terminal or to a file."""
    if not config.pluginmanager.has_plugin(_LOGS):
        return False
    named = any(config.getoption(name) is not None for name in ("log_cli_level", "log_file"))
    return named or any(bool(config.getini(name)) for name in ("log_cli", "log_file"))
