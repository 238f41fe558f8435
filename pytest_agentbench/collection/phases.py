"""The hooks of an item's phases, without pytest's guards where only this plugin's code runs."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_agentbench.engine.driver import GIVEN, JOB, RunAhead
from pytest_agentbench.engine.user_code import is_library

_FIXTURES = frozenset({*GIVEN, "request"})
_LOGS = ("logging-plugin",)
_GUARDS = ("capturemanager", *_LOGS)
"""Plugins of pytest that put streams and handlers in place for each phase, and take them away again."""
_COLLECTORS = ("unraisableexception", "threadexception")
"""Those that look after each phase for exceptions that nobody could catch; after the last one is enough."""
_HOOKS = ("pytest_runtest_setup", "pytest_runtest_call", "pytest_runtest_teardown")


class Phases:
    """The hooks of a file's items, as `Node.ihook` has them.

    Most items find their run ended: they make no fixture, take the result and compare it. Nothing that is not this
    plugin's or an installed plugin's runs meanwhile, and what agents print and log belongs to their runs. Guarding
    three such phases costs a seventh of a session's CPU where agents answer at once.
    """

    def __init__(self, config: pytest.Config, hooks: Any, ahead: RunAhead) -> None:
        self._hooks, self._ahead = hooks, ahead
        self._may_be_quiet = not (
            _shows_logs(config)
            or any(config.getoption(name, False) for name in ("usepdb", "trace", "setuponly"))
            or any(_is_users(each) for name in _HOOKS for each in getattr(config.hook, name).get_hookimpls())
        )
        self._setup, self._call = (_without(config, name, *_GUARDS, *_COLLECTORS) for name in _HOOKS[:2])
        self._teardown, self._last_teardown = (_without(config, _HOOKS[2], *names) for names in (_GUARDS, _LOGS))
        self._quiet: pytest.Item | None = None

    def __getattr__(self, name: str) -> Any:
        hook = self.__dict__[name] = getattr(self._hooks, name)  # the next look finds it at once
        return hook

    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Set the item up; without guards where its run has ended and its fixtures are made."""
        __tracebackhide__ = True
        quiet = self._may_be_quiet and self._is_ready(item)
        self._quiet = item if quiet else None
        (self._setup if quiet else self._hooks.pytest_runtest_setup)(item=item)

    def pytest_runtest_call(self, item: pytest.Item) -> None:
        """Compare its result."""
        __tracebackhide__ = True
        (self._call if self._quiet is item else self._hooks.pytest_runtest_call)(item=item)

    def pytest_runtest_teardown(self, item: pytest.Item, nextitem: pytest.Item | None) -> None:
        """Tear down what it has set up, and with the file's last item what the file has: captured then."""
        __tracebackhide__ = True
        hook = self._hooks.pytest_runtest_teardown
        if self._quiet is item:  # logs are gathered from the setup on, or not at all
            in_file = nextitem is not None and nextitem.parent is item.parent
            hook = self._teardown if in_file else self._last_teardown
        hook(item=item, nextitem=nextitem)

    def _is_ready(self, item: Any) -> bool:
        made = item.parent in self._ahead.fixtures and _FIXTURES.issuperset(item.fixturenames)
        return made and item not in self._ahead.last and self._ahead.engine.has_ended(item.stash[JOB])


def _without(config: pytest.Config, hook: str, *names: str) -> Any:
    """Return a hook that does not call the plugins of these names."""
    plugins = config.pluginmanager
    return plugins.subset_hook_caller(hook, [each for name in names if (each := plugins.get_plugin(name)) is not None])


def _shows_logs(config: pytest.Config) -> bool:
    """Return whether pytest writes logs as they come, to the terminal or to a file."""
    if not config.pluginmanager.has_plugin(_LOGS[0]):
        return False
    named = any(config.getoption(name) is not None for name in ("log_cli_level", "log_file"))
    return named or any(bool(config.getini(name)) for name in ("log_cli", "log_file"))


def _is_users(hook: Any) -> bool:
    """Return whether a hook is neither this plugin's nor of something that was installed: a conftest's, for one."""
    function = hook.function
    code = getattr(function, "__code__", None)
    return not getattr(function, "__module__", "").startswith("pytest_agentbench.") and (
        code is None or not is_library(code.co_filename)
    )
