"""Findings about an image before the first run: its version, and the configuration that it accepts."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from openclaw_support import IN_DOCKER, IN_REAL, IN_STUB, STUB, MakeSpec, make_agent, stub_spec
from support.stub_engine import installed
from support.stub_openclaw import VERSION

from pytest_agentbench.errors import ConfigError, UnavailableError
from pytest_agentbench.packs.openclaw.container import OpenClawAgent
from pytest_agentbench.packs.openclaw.program import Examined, Examiner
from pytest_agentbench.records.case import Model
from pytest_agentbench.workspaces.sandboxes.base import SandboxSpec
from pytest_agentbench.workspaces.sandboxes.choice import Sandboxes
from pytest_agentbench.workspaces.sessions import Workspaces

MODEL = Model(model_id="m", requested_model="openai/gpt-4o-mini")
PROMPT = "You are a benchmark example agent."


def examine(agent: OpenClawAgent, spec: SandboxSpec, *parameters: Mapping[str, Any]) -> list[Examined]:
    """Examine concurrently, once for each of these parameters. Nothing is left behind."""

    async def run() -> list[Examined]:
        workspaces = Workspaces()
        sandboxes = Sandboxes(workspaces)
        examiner = Examiner(sandboxes)
        try:
            looks = (examiner.examined(spec, agent, MODEL, each) for each in parameters or ({},))
            found = await asyncio.gather(*looks)
            assert [name for name in os.listdir(workspaces.session_folder()) if not name.startswith(".")] == []
            return found
        finally:
            await examiner.close()
            await sandboxes.close()
            workspaces.close()

    return asyncio.run(run())


@pytest.mark.slow
@pytest.mark.parametrize("make_spec", [IN_STUB, IN_DOCKER])
def test_a_prompt_that_openclaw_refuses_goes_into_a_file(make_spec: MakeSpec, tmp_path: Path) -> None:
    agent = make_agent(tmp_path, agent={"prompt": PROMPT}, agents_defaults={"sandbox": "workspace-write"})
    [examined] = examine(agent, make_spec(tmp_path))
    assert examined.version.startswith("OpenClaw 2026.9.6")
    assert examined.prompt_file
    assert json.loads(examined.config)["agents"]["list"] == [{"id": "helper", "model": "agentbench/openai/gpt-4o-mini"}]


@pytest.mark.parametrize("make_spec", [IN_DOCKER])
def test_a_user_who_hides_new_files_from_others(
    make_spec: MakeSpec, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """The container's user is one of them."""
    request.addfinalizer(partial(os.umask, os.umask(0o077)))
    [examined] = examine(make_agent(tmp_path), make_spec(tmp_path))
    assert examined.version.startswith("OpenClaw 2026.9.6")


@pytest.mark.slow
def test_a_prompt_that_openclaw_takes_is_in_the_configuration(tmp_path: Path) -> None:
    agent = make_agent(tmp_path, agent={"prompt": PROMPT})
    [examined] = examine(agent, stub_spec(tmp_path, takes_prompt=True))
    assert examined.version == VERSION
    assert not examined.prompt_file
    assert json.loads(examined.config)["agents"]["list"][0]["systemPromptOverride"] == PROMPT


@pytest.mark.slow
def test_an_agent_without_a_prompt_needs_no_file(tmp_path: Path) -> None:
    [examined] = examine(make_agent(tmp_path), stub_spec(tmp_path))
    assert not examined.prompt_file


@pytest.mark.slow
@pytest.mark.parametrize("make_spec", [IN_STUB, IN_REAL])
def test_keys_that_openclaw_refuses_are_errors_with_a_place_in_the_agent_file(
    make_spec: MakeSpec, tmp_path: Path
) -> None:
    agent = make_agent(tmp_path, agent={"prompt": PROMPT, "unheardOf": 1}, agents_defaults={"unknownSetting": True})
    with pytest.raises(ConfigError) as caught:
        examine(agent, make_spec(tmp_path))
    in_defaults, in_agent = sorted(str(caught.value).splitlines())
    assert str(agent.path) in in_defaults
    assert "openclaw.agent" in in_agent + in_defaults
    assert 'Unrecognized key: "unknownSetting"' in str(caught.value)
    assert 'Unrecognized key: "unheardOf"' in str(caught.value)
    assert "systemPromptOverride" not in str(caught.value)


@pytest.mark.slow
def test_an_image_without_openclaw_is_unavailable(tmp_path: Path) -> None:
    programs = tmp_path / "programs"
    programs.mkdir()
    (programs / "node").write_text("#!/bin/sh\n")
    (programs / "node").chmod(0o755)
    spec = SandboxSpec("docker", image=STUB, cli=installed(tmp_path / "engine", {STUB: programs}))
    with pytest.raises(UnavailableError, match=r"has no `openclaw`, which .*`agentbench openclaw image`"):
        examine(make_agent(tmp_path), spec)


@pytest.mark.slow
def test_runs_side_by_side_share_one_look_at_an_image(tmp_path: Path) -> None:
    first, second, other = examine(make_agent(tmp_path), stub_spec(tmp_path), {}, {}, {"seed": 1})
    assert first is second
    assert first is not other
