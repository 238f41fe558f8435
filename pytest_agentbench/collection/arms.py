"""Arms of cases by the parameters of their fixtures: a parametrised `agentbench_runner` is several agents."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from pytest_agentbench.engine.job import FixtureParameters
from pytest_agentbench.errors import ConfigError
from pytest_agentbench.identity.fingerprints import fingerprint

_UNSAFE = re.compile(r"[^A-Za-z0-9_.-]")


class Arm(NamedTuple):
    """One set of the fixtures' parameters; `callspec` is pytest's object for it. Both are None without parameters."""

    parameters: FixtureParameters | None = None
    callspec: Any = None


NO_ARM = Arm()


def list_arms(collector: pytest.Module, function: Callable[..., None], fixtureinfo: Any) -> list[Arm]:
    """Return an arm for each set of parameters of the fixtures that the function asks for, [NO_ARM] without any.

    `fixtureinfo` is pytest's of an item with the function. Raises ConfigError for ids that give equal names.
    """
    definitions = getattr(fixtureinfo, "name2fixturedefs", {}).values()
    if not any(definition.params for overriding in definitions for definition in overriding):
        return [NO_ARM]
    ids: dict[str, str] = {}
    arms = []
    for callspec in _generate_callspecs(collector, function):
        name = _name_arm(callspec.id)
        if name in ids:
            raise ConfigError(
                f"{collector.path}: the ids {ids[name]!r} and {callspec.id!r} of the parameters of agentbench_runner "
                f"both become the variant {name!r}; give them other ids"
            )
        ids[name] = callspec.id
        arms.append(Arm(FixtureParameters(name, next(iter(ids)), _hash_values(callspec)), callspec))
    return arms


def _generate_callspecs(collector: pytest.Module, function: Callable[..., None]) -> list[Any]:
    """Return pytest's sets of parameters for a test function, in its order, with all rules for fixtures' parameters."""
    setattr(collector.obj, function.__name__, function)  # pytest looks it up in the module
    try:
        return [item.callspec for item in collector._genfunctions(function.__name__, function)]
    finally:
        delattr(collector.obj, function.__name__)


def _hash_values(callspec: Any) -> str:
    """Return 8 hex digits over the parameters: by their values, or by their places if they are objects."""
    from pytest_agentbench.engine.agent_values import is_scalar  # few sessions have parameters

    values = {name: value if is_scalar(value) else [callspec.indices[name]] for name, value in callspec.params.items()}
    return fingerprint(values)[:8]


def _name_arm(parameter_id: str) -> str:
    """Return the name of a variant for the id of parameters: `_` replaces characters that node ids cannot have."""
    from pytest_agentbench.config.variants import name_problem

    name = re.sub(r"-(?=r[0-9]+$)", "_", _UNSAFE.sub("_", parameter_id)[:40])
    if name_problem(name) is not None:
        return f"p_{name}"[:40]
    return name
