"""Which fixtures made an agent: pytest's side of its identity."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import pytest

from pytest_agentbench.engine.driver import JOB, RUNNER_FIXTURE, true_nodeid
from pytest_agentbench.engine.identities import Identities, Origin

_NO_PARAM: Any = object()


class Origins:
    """A pytest plugin that tells `identities` what made each value of the fixture `agentbench_runner`."""

    def __init__(self, identities: Identities) -> None:
        self.identities = identities
        self.item: pytest.Item | None = None
        self.made: dict[str, dict[Any, tuple[Any, int] | None]] = {}

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Fixtures are set up for this item now."""
        self.item = item

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: Any, request: Any) -> Generator[None, Any, Any]:
        """Every fixture may be asked for by the one that makes the agent."""
        value = yield
        param = getattr(request, "param", _NO_PARAM)
        told = None if param is _NO_PARAM else (param, getattr(request, "param_index", 0))
        self.made.setdefault(fixturedef.argname, {})[fixturedef] = told
        if fixturedef.argname == RUNNER_FIXTURE and self.item is not None and JOB in self.item.stash:
            brief = None if fixturedef.scope == "session" else fixturedef
            origin = self._origin(fixturedef, true_nodeid(self.item))
            self.identities.made(value, self.item.stash[JOB].runner_scope, origin, brief)
        return value

    def _origin(self, fixturedef: Any, nodeid: str) -> Origin:
        found: dict[Any, None] = {}
        todo = [fixturedef]
        while todo:
            each = todo.pop()
            if each not in found:
                found[each] = None
                todo += [below for name in each.argnames for below in self._below(each, name, nodeid)]
        params = {each.argname: told for each in found if (told := self.made[each.argname][each]) is not None}
        return Origin(tuple(each.func for each in found), params)

    def _below(self, fixturedef: Any, name: str, nodeid: str) -> list[Any]:
        """The fixture that `fixturedef` gets as its argument `name`: of those in sight, the nearest.

        One that overrides a fixture of its own name gets the next farther one.
        """
        alive = [each for each in self.made.get(name, ()) if each.cached_result is not None]
        visible = [each for each in alive if each is not fixturedef and _sees(nodeid, each.baseid)]
        if name == fixturedef.argname:
            visible = [each for each in visible if len(each.baseid) <= len(fixturedef.baseid)]
        return sorted(visible, key=lambda each: len(each.baseid))[-1:]


def _sees(nodeid: str, base: str) -> bool:
    """Whether an item may ask for a fixture that is defined at the node `base`."""
    return base in ("", ".") or nodeid == base or nodeid.startswith((f"{base}/", f"{base}::"))
