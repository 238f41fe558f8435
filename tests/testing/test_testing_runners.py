"""Kits for sections of profiles, kinds of files and runners: ours pass, and broken ones are reported."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from testing.kits_support import CASES, NUMBERS, Parrot, plain_profile

import pytest_agentbench as ab
from pytest_agentbench.extensions import find_extension
from pytest_agentbench.runners.probe import llm_probe
from pytest_agentbench.testing.samples import sample_case


def test_profile_sections_pass() -> None:
    ab.check_profile_section(find_extension("run_profile", "shell"), {"seconds": 2}, {"seconds": "soon"})
    ab.check_profile_section(find_extension("run_profile", "planner"), {"max_rounds": 3}, {"max_rounds": 0})
    ab.check_profile_section(find_extension("run_profile", "task_text"), "detailed", "vague")
    ab.check_profile_section(find_extension("evaluation_profile", "mcp_tasks"), {}, {"no_such_field": 1})


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"excess": lambda found, most, guest: [((), found, most)]}, "it refuses the user's own value"),
        ({"fingerprint": lambda found: object()}, "no stored run is found again"),
        ({"default": object}, "default: it returns another value each time"),
        ({"doc": ""}, "doc: found ''"),
    ],
)
def test_a_broken_section_is_noticed(change: dict[str, Any], said: str) -> None:
    section = replace(find_extension("run_profile", "shell"), **change)
    with pytest.raises(AssertionError, match=said):
        ab.check_profile_section(section, {"seconds": 2.0}, {"seconds": "soon"})


AGENT = CASES / "agents" / "release_writer" / "agent.yaml"


def test_kinds_of_files_pass() -> None:
    ab.check_file_kind(find_extension("file", "agents"), AGENT)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"id_field": "name"}, "has no field 'name'"),
        ({"folder": "people"}, "is not in people"),
        ({"stem": None}, "is not in agents"),
        ({"problems": lambda path: [((), "odd")]}, "problems: it reports"),
    ],
)
def test_a_broken_kind_of_file_is_noticed(change: dict[str, Any], said: str) -> None:
    with pytest.raises(AssertionError, match=said):
        ab.check_file_kind(replace(find_extension("file", "agents"), **change), AGENT)


def test_a_section_that_takes_anything_is_noticed() -> None:
    with pytest.raises(AssertionError, match="returned None, expected ValidationError"):
        ab.check_profile_section(find_extension("run_profile", "shell"), {"seconds": 2.0}, {"seconds": 3.0})


def test_the_samples_runner_passes(shell: ab.Case) -> None:
    end = ab.check_runner(find_extension("runner", "shell"), shell, profile=plain_profile())
    assert end.status == "success"


def test_our_runner_and_a_function_pass(tmp_path: Path) -> None:
    case = sample_case(path=tmp_path / "test.yaml")
    parrot = Parrot(ab.Model(model_id="demo", requested_model="demo", scripted=True))
    assert ab.check_runner(llm_probe, case, client=parrot).status == "success"

    async def echo(case: ab.Case, context: ab.RunContext) -> str:
        return case.messages[0].content

    assert ab.check_runner(echo, case).status == "success"


def not_async(case: ab.Case, context: ab.RunContext) -> str:
    return ""


async def wrong_type(case: ab.Case, context: ab.RunContext) -> Any:
    return 5


async def changes_case(case: ab.Case, context: ab.RunContext) -> str:
    case.metadata["seen"] = True
    return ""


@pytest.mark.parametrize(
    ("runner", "said"), [(not_async, "expected `async"), (wrong_type, "invalid"), (changes_case, "changed its case")]
)
def test_a_broken_runner_is_noticed(runner: Any, said: str, tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match=said):
        ab.check_runner(runner, sample_case(path=tmp_path / "test.yaml"))


@pytest.mark.parametrize(
    ("prepare", "said"),
    [
        (lambda self, request: None, "expected Prepared"),
        (lambda self, request: ab.Prepared(identity={"": 1}), "expected names"),
        (lambda self, request: ab.Prepared(identity={"at": next(NUMBERS)}), "changed between two calls"),
    ],
)
def test_a_broken_preparation_is_noticed(
    prepare: Any, said: str, shell: ab.Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner = find_extension("runner", "shell")
    monkeypatch.setattr("agentbench_sample.shell.ShellSession.prepare", prepare)
    with pytest.raises(AssertionError, match=said):
        ab.check_runner(runner, shell, profile=plain_profile())
