"""Folders of `claude plugin eval` as cases: which files are cases, their keys, and mistakes in them."""

from __future__ import annotations

import pytest
from packs.plugin_evals.plugin_support import EVAL, read_case, write_grader, write_plugin, write_prompt
from support.bench import Bench

from pytest_agentbench.config.base import Guest
from pytest_agentbench.errors import ConfigError
from pytest_agentbench.records.case import Message
from pytest_agentbench.sources.discovery import find_cases


def list_cases(bench: Bench) -> list[str]:
    return [str(path.relative_to(bench.path / "cases")) for path in find_cases(bench.path / "cases")]


def test_cases_lie_below_evals_of_a_plugin_and_files_of_other_tools_are_left_alone(bench: Bench) -> None:
    write_plugin(bench)
    write_prompt(bench)
    bench.write(f"{EVAL}/case.yaml", "prompt: the same case\n")
    bench.write("cases/units/evals/group/feet/case.yaml", "prompt: How long is a foot?\n")
    bench.write("cases/agent/prompt.md", "You are an agent.")
    bench.write("cases/agent/evals/one/prompt.md", "No plugin is here.")
    bench.write("cases/other/case.yaml", "prompt: a case of another tool\nsteps: 3\n")
    bench.write("cases/loose/one/case.yaml", "prompt: Hello\ngraders: []\n")
    write_prompt(bench, folder="cases/loose/two")
    write_grader(bench, "short", folder="cases/loose/two", type="regex", pattern="a")
    expected = ["loose/one/case.yaml", "loose/two/prompt.md", "units/evals/convert/prompt.md"]
    assert list_cases(bench) == [*expected, "units/evals/group/feet/case.yaml"]


def test_front_matter_precedes_case_yaml_and_graders_of_both_places_count(bench: Bench) -> None:
    write_plugin(bench)
    bench.write(
        f"{EVAL}/case.yaml",
        """
schema_version: "1.1"
name: from-yaml
description: Old title
expected_outcome: 25.4 cm
prompt: Old prompt
execution: {max_turns: 3, append_system_prompt: Be brief.}
graders: [{type: regex, pattern: cm}]
""",
    )
    write_prompt(bench, name="from-prompt", description="New title", tags=["units"])
    write_grader(bench, "number", type="regex", pattern="25")
    case = read_case(bench)
    assert (case.case_id, case.title, case.tags) == ("from-prompt", "New title", ("units",))
    assert case.metadata == {"description": "New title", "expected_outcome": "25.4 cm"}
    assert case.runner.overrides == {"max_turns": 3}
    assert case.messages == (
        Message(role="system", content="Be brief."),
        Message(role="user", content="10 inches in centimetres?"),
    )
    assert [skill.name for skill in case.skills] == ["inches"]
    assert [grader.name for grader in case.parts["plugin_eval"].graders] == ["regex_1", "number"]


def test_keys_without_effect_and_baselines_are_named(bench: Bench) -> None:
    write_plugin(bench)
    bench.write("cases/units/hooks/hooks.json", "{}")
    write_prompt(bench, model="opus", allowed_tools=["Bash"], env={"EVAL_A": "1"})
    write_grader(bench, "before", type="baseline", baseline_file="old.jsonl")
    write_grader(bench, "number", type="regex", pattern="25")
    case = read_case(bench)
    assert case.metadata["left_out"] == [
        "model: found 'opus', left out, because --model decides",
        "allowed_tools: found ['Bash'], left out, because the sandbox limits the agent",
        "graders: left out the baseline 'before', because transcripts are not compared",
        "plugin units: left out hooks",
        "env: left out, because only the runner agent has it",
    ]
    assert [grader.name for grader in case.parts["plugin_eval"].graders] == ["number"]


def test_plugins_of_the_case_replace_the_nearest_one(bench: Bench) -> None:
    write_plugin(bench)
    bench.write("cases/other/.mcp.json", '{"kb": {"command": "kb"}}')
    write_prompt(bench, plugins=["../../../other"])
    case = read_case(bench)
    assert not case.skills
    assert [*case.mcp_servers] == ["kb"]


def test_added_folders_are_attachments_and_the_scaffold_script_is_the_setup(bench: Bench) -> None:
    write_plugin(bench)
    bench.write(f"{EVAL}/data/old/a.txt", "A")
    bench.write(f"{EVAL}/make.sh", "#!/usr/bin/env bash\ntouch a.txt\n")
    write_prompt(bench, context={"add_dirs": ["data"], "scaffold_script": "make.sh"})
    case = read_case(bench)
    assert [attachment.name for attachment in case.attachments] == ["data/old/a.txt"]
    assert case.setup is not None
    assert case.setup.command == ("bash", "-ec", "#!/usr/bin/env bash\ntouch a.txt\n")


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ("max_turn: 5", "prompt.md:2:1: max_turn: unknown field; did you mean 'max_turns'?"),
        ("schema_version: 2", "prompt.md:2:17: schema_version: found 2, expected '1.1'"),
        ("runs: 51", "prompt.md:2:7: runs: found 51"),
        ("env: {PATH: x}", "prompt.md:2:6: env: found the variable 'PATH', expected names that begin with EVAL_"),
        ("context: {history_file: a}", "prompt.md:2:25: context.history_file: found 'a', which resumes a session"),
        ("context: {scaffold_script: a}", "context.scaffold_script: found 'a', expected an existing file"),
        (
            "graders: [{type: regexp}]",
            "prompt.md:2:18: graders[0].type: found 'regexp', expected a type of grader; did",
        ),
        ("graders: [{type: tool_used}]", "prompt.md:2:11: graders[0].tool: missing"),
        ("graders: [{type: regex, pattern: a, name: x}, {type: llm, criteria: a, name: x}]", "two graders 'x'"),
        ("plugins: [gone]", "plugins: found 'gone', expected an existing folder"),
    ],
)
def test_a_wrong_key_is_an_error_at_its_place(bench: Bench, keys: str, message: str) -> None:
    write_plugin(bench)
    bench.write(f"{EVAL}/prompt.md", f"---\n{keys}\n---\nHow long?\n")
    with pytest.raises(ConfigError) as error:
        read_case(bench)
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("grader", "message"),
    [
        ("type: regex\npattern: '(a'", "graders/bad.md:3:10: pattern: found '(a', which is not a regular expression"),
        ("type: regex\npattern: a\nflags: y", "graders/bad.md:4:8: flags: found the flag 'y'"),
        ("type: regex\npattern: a\nmatch: 'count:'", "graders/bad.md:4:8: match: found 'count:', expected contains"),
        ("type: tool_used\ntool: Bash\nmin: 3\nmax: 1", "found max 1 below min 3"),
        ("type: llm", "graders/bad.md:2:1: criteria: missing"),
        ("type: regex\npattern: a\ntarget: {source: file, path: ../a}", "without `..`"),
    ],
)
def test_a_wrong_grader_is_an_error_at_its_place(bench: Bench, grader: str, message: str) -> None:
    write_plugin(bench)
    write_prompt(bench)
    bench.write(f"{EVAL}/graders/bad.md", f"---\n{grader}\n---\n")
    with pytest.raises(ConfigError) as error:
        read_case(bench)
    assert message in str(error.value)


def test_a_case_without_a_prompt_is_an_error(bench: Bench) -> None:
    write_plugin(bench)
    write_prompt(bench, "", description="Nothing to do")
    with pytest.raises(ConfigError, match=r"prompt\.md:1:1: found no prompt"):
        read_case(bench)


def test_a_folder_that_is_not_trusted_runs_no_scaffold_script_and_no_server(bench: Bench) -> None:
    write_plugin(bench)
    bench.write(f"{EVAL}/make.sh", "touch a.txt\n")
    write_prompt(bench, context={"scaffold_script": "make.sh"})
    guest = Guest(bench.path / "cases")
    with pytest.raises(ConfigError, match=r"found the scaffold script 'make\.sh' in a folder that is not trusted"):
        read_case(bench, guest=guest)
    bench.write("cases/units/.mcp.json", '{"kb": {"command": "kb"}}')
    write_prompt(bench)
    with pytest.raises(ConfigError, match="found the server 'kb' in a folder that is not trusted"):
        read_case(bench, guest=guest)
