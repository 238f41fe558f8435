"""The identities of a session's agents and plugin parts."""

from __future__ import annotations

import gc
import weakref

import pytest

from pytest_agentbench.engine.identities import Identities, Origin
from pytest_agentbench.errors import ConfigError


@pytest.fixture
def agents(project):
    return Identities(project.reader, pytest.fail)


def test_an_agent_that_two_fixtures_return_has_an_identity_in_the_scope_of_each(project, agents):
    module = project.load()
    agent = module.runner()
    agents.made(agent, "a", Origin((module.runner,)))
    agents.made(agent, "b", Origin((project.load("bench_agents.tools").look_up,)))
    one, other = agents.agent(agent, "a", "agent"), agents.agent(agent, "b", "agent")
    assert one != other
    assert agents.agent(agent, "a", "agent") == one


def test_an_object_that_its_fixture_changes_has_a_new_identity(project, agents):
    agent = project.load().runner()
    found = []
    for mode in ("slow", "fast"):
        agent.mode = mode
        agents.made(agent, None, Origin())
        found.append(agents.agent(agent, None, "agent"))
    assert [each["callable"]["mode"] for each in found] == ["slow", "fast"]


class Versioned:
    version = "1"

    def fingerprint(self) -> str:
        return self.version

    def __call__(self) -> str:
        return self.version


def test_a_fingerprint_replaces_the_code_of_agents_and_plugin_parts(agents):
    thing = Versioned()
    assert agents.agent(thing, None, "agent") == {"name": "agent", "fingerprint": "1"}
    assert agents.part("check", "mine", thing) == {"fingerprint": "1"}
    assert agents.part("tool", "method", thing.__call__) == {"fingerprint": "1"}
    thing.version = "2"
    assert agents.part("check", "mine", thing) == {"fingerprint": "2"}


def test_a_fingerprint_of_a_plugin_part_must_be_a_text(agents):
    thing = Versioned()
    thing.version = 3
    with pytest.raises(
        ConfigError, match="check mine: fingerprint: found int '3', expected a text that names the check's"
    ):
        agents.part("check", "mine", thing)


@pytest.mark.slow
def test_agents_of_a_brief_fixture_are_not_kept(project, agents):
    Agent = project.load().Agent
    gone = []
    for number in range(3):
        agent = Agent(str(number), {})
        agents.made(agent, None, Origin(), brief="fixture")
        agents.agent(agent, None, "agent")
        gone.append(weakref.ref(agent))
    del agent
    gc.collect()
    assert [each() is None for each in gone] == [True, True, False]
