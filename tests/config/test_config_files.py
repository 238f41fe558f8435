from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from pytest_agentbench.config.base import Known, load
from pytest_agentbench.config.case_file import TestCaseFile
from pytest_agentbench.config.dataset_file import DatasetDescriptor
from pytest_agentbench.config.kinds import find_config_files
from pytest_agentbench.config.profiles import EvaluationProfile, ModelsFile, RunProfile, SuiteFile
from pytest_agentbench.errors import ConfigError
from pytest_agentbench.packs.openclaw.config import AgentFile

SHARED = Path(__file__).parents[3] / "shared" / "data" / "config"

UNVERIFIED = Known()

CASE = """\
schema_version: 1
case_id: sum
title: A sum
runner: {type: llm_probe}
input:
  messages:
    - role: user
      content: What is 2 + 2?
"""
SUITE = "schema_version: 1\nsuite_id: smoke\ntitle: Smoke\n"
RUN = "schema_version: 1\nrun_profile_id: standard\ntitle: Standard\n"
EVALUATION = "schema_version: 1\nevaluation_profile_id: standard\ntitle: Standard\n"
MODELS = "schema_version: 1\n"


@pytest.fixture
def errors(tmp_path):
    """The lines of the error that a file of a kind gives, without the file's name."""

    def collect(kind, text, known=UNVERIFIED):
        path = tmp_path / "file.yaml"
        path.write_text(textwrap.dedent(text))
        try:
            load(path, kind, known)
        except ConfigError as error:
            return [line.removeprefix(f"{path}:") for line in str(error).splitlines()]
        return []

    return collect


@pytest.mark.skipif(not SHARED.is_dir(), reason="the conformance data are not here")
def test_every_file_of_the_conformance_data_loads():
    loaded = [load(path, kind) for path, kind in find_config_files(SHARED)]
    assert sorted(type(file).__name__ for file in loaded) == sorted(
        ["AgentFile"] * 2 + ["EvaluationProfile"] * 2 + ["RunProfile"] * 4 + ["SuiteFile"] * 3 + ["TestCaseFile"] * 4
    )


@pytest.mark.parametrize("version", ["true", "1.0", '"1"', "2", "null"])
def test_only_the_whole_number_1_is_a_schema_version(errors, version):
    (line,) = errors(SuiteFile, SUITE.replace("version: 1", f"version: {version}"))
    assert line.startswith("1:17: schema_version: found ")
    assert line.endswith("expected the whole number 1")


def test_schema_version_is_required(errors):
    assert errors(SuiteFile, "suite_id: s\ntitle: S\n") == ["1:1: schema_version: missing; add it"]


@pytest.mark.parametrize("text", ["", "- a\n", "just text\n"])
def test_the_top_is_a_mapping(errors, text):
    (line,) = errors(SuiteFile, text)
    assert line.startswith("1:1: found ")
    assert "expected a top-level mapping" in line


def test_all_errors_of_a_file_come_at_once_with_their_places(errors):
    text = CASE.replace("title: A sum", "titel: A sum").replace("sum\n", "My Sum\n", 1) + (
        "deterministic_checks:\n"
        "  - check_id: calls\n"
        "    declarative: {kind: tool_call_count, count: '3'}\n"
        "must_pass: maybe\n"
        "must_pass: true\n"
    )
    assert errors(TestCaseFile, text) == [
        "1:1: title: missing; add it",
        "2:10: case_id: found 'My Sum', expected a slug (lower-case letters, digits, '_' and '-', beginning with a "
        "letter or digit)",
        "3:1: titel: unknown field; did you mean 'title'?",
        "11:49: deterministic_checks[0].declarative.count: found '3', expected a whole number",
        "13:1: duplicate key 'must_pass'; remove one of them",
    ]


@pytest.mark.parametrize(
    ("field", "expected"),
    [
        ("expectations: {hard_expectation: []}", "did you mean 'hard_expectations'?"),
        ("rubric: {scale: {lowest: 3}}", "there is anchors, max, min"),
        ("deterministic_checks: [{check_id: a, declarativ: {}}]", "did you mean 'declarative'?"),
        ("deterministic_checks: [{check_id: a, declarative: {kind: tool_call_count, cuont: 3}}]", "mean 'count'?"),
        ("thresholds: {passrate: 1}", "did you mean 'pass_rate'?"),
    ],
)
def test_an_unknown_field_is_refused_with_a_suggestion(errors, field, expected):
    lines = errors(TestCaseFile, CASE + field + "\n")
    assert any("unknown field" in line and expected in line for line in lines)


@pytest.mark.parametrize(
    ("field", "expected"),
    [
        ("deterministic_checks: [{check_id: a}]", "requires 'declarative' or 'python_hook'"),
        (
            "deterministic_checks: [{check_id: a, declarative: {kind: final_response_present}, "
            "python_hook: {import_path: m, callable_name: f}}]",
            "cannot define both 'declarative' and 'python_hook'",
        ),
        (
            "deterministic_checks: [{check_id: a, python_hook: {import_path: m, path: p, callable_name: f}}]",
            "Specify only one of",
        ),
        ("deterministic_checks: [{check_id: a, declarative: {kind: output_artifact_present}}]", "at least one matcher"),
        (
            "deterministic_checks: [{check_id: a, declarative: {kind: openclaw_workspace_file_present, "
            "relative_path: r, contains: x, contains_any: [y]}}]",
            "Use either legacy 'contains'",
        ),
        (
            "deterministic_checks: [{check_id: a, declarative: {kind: openclaw_workspace_file_present, "
            "relative_path: ../r}}]",
            "expected a path inside the workspace",
        ),
        (
            "deterministic_checks: [{check_id: a, python_hook: {path: gone.py, callable_name: f}}]",
            "9:58: deterministic_checks[0].python_hook.path: found 'gone.py', expected an existing file",
        ),
        (
            "deterministic_checks: [{check_id: a, declarative: {kind: final_response_present}},\n"
            "  {check_id: a, declarative: {kind: final_response_present}}]",
            "10:14: deterministic_checks[1].check_id: Duplicate check_id 'a'",
        ),
        ("deterministic_checks: [{check_id: a, declarative: {kind: file_contains, path: p, text: ''}}]", "found ''"),
        ("deterministic_checks: [{check_id: a, declarative: {kind: status_is, status: ok}}]", "'timed_out'"),
        ("rubric: {scale: {min: 5, max: 5}}", "max (5) must be greater than min (5)"),
        ("expectations: {hard_expectations: [{text: x, weight: -1}]}", "weight: found -1"),
        ("thresholds: {pass_rate: 1.5}", "pass_rate: found 1.5"),
        ("metrics: [{name: exact_match}, {name: exact_match}]", "Duplicate name 'exact_match'"),
        ("tags: smoke", "tags: found 'smoke', expected a list"),
        ("must_pass: 1", "must_pass: found 1, expected true or false"),
    ],
)
def test_a_case_is_refused(errors, field, expected):
    lines = errors(TestCaseFile, CASE + field + "\n")
    assert len(lines) == 1
    assert expected in lines[0]


@pytest.mark.parametrize(
    ("context", "expected"),
    [
        (
            "{openclaw: {expected_artifact: ../r.md}}",
            "context.openclaw.expected_artifact: found '../r.md', expected the",
        ),
        ("{openclaw: {expected_artifact: /r.md}}", "found '/r.md', expected the path of a file inside the workspace"),
        ("{openclaw: {expected_artifact: ' '}}", "found ' ', expected the path"),
        ("{openclaw: {expected_artifact: [r.md]}}", "found ['r.md'], expected the path"),
        ("{openclaw: {artifact: r.md}}", "unknown field 'artifact'; did you mean 'expected_artifact'?"),
        ("{openclaw: r.md}", "input.context.openclaw: found 'r.md', expected a mapping"),
        (
            "{llm_probe: {tools: [exec_shell]}}",
            "input.context.llm_probe.tools: the runner openclaw has its own tools",
        ),
    ],
)
def test_fields_that_an_openclaw_context_cannot_have_are_errors(errors, context, expected):
    case = CASE.replace("type: llm_probe", "type: openclaw")
    [line] = errors(TestCaseFile, case + f"  context: {context}\n")
    assert expected in line


def test_an_openclaw_case_has_no_mcp_servers(errors):
    case = CASE.replace("type: llm_probe", "type: openclaw") + "mcp_servers: [files]\n"
    [line] = errors(TestCaseFile, case)
    assert "9:14: mcp_servers: the runner openclaw has its own tools and cannot get others; leave" in line


def test_an_openclaw_case_has_a_sandbox_for_its_verifiers_only(errors):
    case = CASE.replace("type: llm_probe", "type: openclaw") + "sandbox: {image: 'a:1'}\n"
    [line] = errors(TestCaseFile, case)
    assert "9:10: sandbox: the runner openclaw gets its container from the run profile" in line
    assert errors(TestCaseFile, case + "verify: {command: [make, test]}\n") == []


def test_neither_has_a_dataset_for_it(errors):
    text = (
        "schema_version: 1\nfiles: [a.jsonl]\nrunner: {type: openclaw}\n"
        "context: {llm_probe: {tools: [exec_shell]}}\nmcp_servers: [files]\n"
    )
    found = errors(DatasetDescriptor, text)
    assert any("context.llm_probe.tools: the runner openclaw" in line for line in found)
    assert any("mcp_servers: the runner openclaw" in line for line in found)


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("{role: user}", "requires either inline 'content' or a 'source'"),
        ("{role: user, content: a, source: {path: file.yaml}}", "cannot define both 'content' and 'source'"),
        ("{role: user, source: {path: gone.txt}}", "7:35: input.messages[0].source.path: found 'gone.txt', expected"),
        ("{role: boss, content: a}", "found 'boss', expected 'system', 'user', 'assistant' or 'tool'"),
    ],
)
def test_a_message_is_refused(errors, message, expected):
    text = CASE[: CASE.index("    - role")] + f"    - {message}\n"
    (line,) = errors(TestCaseFile, text)
    assert expected in line


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("  attachments: [gone.txt, file.yaml, other.txt]", ["attachments[0]: found 'gone.txt'", "attachments[2]"]),
        ("  turns: [{role: assistant, content: more}]", ["input.turns[0].role: found 'assistant', expected 'user'"]),
        ("  context: {llm_probe: {tools: read_file}}", ["llm_probe.tools: found 'read_file', expected a list"]),
        ("  context: {llm_probe: {tools: [reed_file]}}", ["9:33: input.context.llm_probe.tools[0]: unknown tool"]),
    ],
)
def test_an_input_is_refused(errors, line, expected):
    lines = errors(TestCaseFile, CASE + line + "\n", Known(tools=frozenset({"read_file"})))
    assert len(lines) == len(expected)
    assert all(part in found for part, found in zip(expected, lines, strict=True))


def test_names_are_verified_only_where_they_are_known(errors):
    text = CASE.replace("llm_probe", "my_runner") + (
        "metrics: [{name: mine}]\ndeterministic_checks: [{check_id: a, declarative: {kind: my_check, any: thing}}]\n"
    )
    assert errors(TestCaseFile, text) == []
    known = Known(frozenset({"my_runners"}), frozenset(), frozenset({"my_checks"}), frozenset({"f1"}))
    assert errors(TestCaseFile, text, known) == [
        "4:16: runner.type: unknown runner 'my_runner'; did you mean 'my_runners'?",
        "9:18: metrics[0].name: unknown metric 'mine'; there is f1",
        "10:58: deterministic_checks[0].declarative.kind: unknown check kind 'my_check'; did you mean 'my_checks'?",
    ]


def test_a_wrong_element_hides_nothing_that_is_wrong_with_the_others(errors):
    checks = """\
        deterministic_checks:
          - {check_id: a, declarative: {kind: final_response_present}}
          - {check_id: b, declarative: {kind: regex_match}}
          - {check_id: c, declarative: {kind: my_check}}
          - {check_id: a, declarative: {kind: final_response_present}}
        metrics: [{name: f1, threshold: 2}, {name: mine}]
        """
    known = Known(checks=frozenset({"my_checks"}), metrics=frozenset({"f1"}))
    assert errors(TestCaseFile, CASE + textwrap.dedent(checks), known) == [
        "11:32: deterministic_checks[1].declarative.pattern: missing; add it",
        "12:39: deterministic_checks[2].declarative.kind: unknown check kind 'my_check'; did you mean 'my_checks'?",
        "13:16: deterministic_checks[3].check_id: Duplicate check_id 'a'; each must be unique",
        "14:33: metrics[0].threshold: found 2, expected at most 1",
        "14:44: metrics[1].name: unknown metric 'mine'; there is f1",
    ]
    assert errors(SuiteFile, SUITE + "models: [{model_id: A}, {model_id: a}, {model_id: a}]\n") == [
        "4:21: models[0].model_id: found 'A', expected a slug (lower-case letters, digits, '_' and '-', beginning with "
        "a letter or digit)",
        "4:51: models[2].model_id: Duplicate model_id 'a'; each must be unique",
    ]


@pytest.mark.parametrize("temperature", ["-0.1", "2.1", "hot", "true"])
@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (TestCaseFile, CASE.replace("type: llm_probe", "type: llm_probe, temperature: X")),
        (RunProfile, RUN + "runner_defaults: {temperature: X}\n"),
        (RunProfile, RUN + "model_overrides: {m: {temperature: X}}\n"),
        (SuiteFile, SUITE + "models: [{model_id: m, temperature: X}]\n"),
        (ModelsFile, MODELS + "models: [{model_id: m, parameters: {temperature: X}}]\n"),
        (EvaluationProfile, EVALUATION + "judges: [{judge_id: j, type: llm_probe, temperature: X}]\n"),
        (EvaluationProfile, EVALUATION + "judges: [{judge_id: j, type: t, request_options: {temperature: X}}]\n"),
    ],
)
def test_every_temperature_is_a_number_from_0_to_2(errors, kind, text, temperature):
    (line,) = errors(kind, text.replace("X", temperature))
    assert "temperature: found" in line
    assert line.split(":")[1] == str(text.splitlines()[int(line.split(":")[0]) - 1].index("X") + 1)
    assert errors(kind, text.replace("X", "2")) == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("models: [{model_id: a}, {model_id: a}]", "4:36: models[1].model_id: Duplicate model_id 'a'"),
        ("models: [{model_id: GPT-4}]", "found 'GPT-4', expected a slug"),
        ("models: [{model_id: a, provider: q}]", "4:34: models[0].provider: found no model_name"),
        ("models: [{model_id: a, max_turns: 2}]", "4:35: models[0].max_turns: is a setting of runs"),
        ("models: [{model_id: a, messages: []}]", "4:34: models[0].messages: is set by each run itself"),
        ("models: [{model_id: a, extra_body: 1}]", "4:36: models[0].extra_body: found 1, expected a mapping"),
        (
            "models: [{model_id: a, primary_params: {label: x}}]",
            "models[0].primary_params.label: is a field of a model",
        ),
        ("case_selection: {include_case: [a]}", "did you mean 'include_case_ids'?"),
        (
            "openclaw: {agent_assignments: [{agent_id: a, case_selection: {exclude_case_ids: [x]}}]}",
            "an assignment needs include_case_ids or include_tags",
        ),
    ],
)
def test_a_suite_is_refused(errors, text, expected):
    (line,) = errors(SuiteFile, SUITE + text + "\n")
    assert expected in line


def test_a_suite_model_keeps_its_extra_fields_and_its_name(tmp_path):
    path = tmp_path / "suite.yaml"
    path.write_text(
        SUITE + "models:\n"
        "  - {model_id: a, requested_model: o/a, openrouter_model: p/a, primary_params: {reasoning: {effort: low}}}\n"
        "  - {model_id: b, openrouter_model: p/b, provider: q, model_name: b}\n"
        "  - {model_id: c, provider: q, model_name: c}\n"
        "  - {model_id: d, top_k: 5, extra_body: {mine: 1}}\n"
    )
    models = load(path, SuiteFile).models
    assert [model.declared_name for model in models] == ["o/a", "p/b", "q/c", None]
    assert models[0].primary_params == {"reasoning": {"effort": "low"}}
    assert models[3].request_fields == {"top_k": 5, "extra_body": {"mine": 1}}


@pytest.mark.parametrize("image", ["openclaw", "openclaw:latest", "localhost:5000/openclaw", "ghcr.io/a/b:"])
def test_a_floating_image_must_be_allowed(errors, image):
    text = RUN + f"openclaw: {{agent_id: a, image: '{image}', timeout_seconds: 5}}\n"
    (line,) = errors(RunProfile, text)
    assert line.startswith("4:32: openclaw.image: found ")
    assert "expected a pinned image" in line
    assert errors(RunProfile, text + "allow_floating_image: true\n") == []


@pytest.mark.parametrize("image", ["openclaw:1.2", "localhost:5000/openclaw:1", "openclaw@sha256:00ff"])
def test_a_pinned_image_is_fine(errors, image):
    assert errors(RunProfile, RUN + f"openclaw: {{agent_id: a, image: '{image}', timeout_seconds: 5}}\n") == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("execution_policy: {max_concurrency: 0}", "found 0, expected at least 1"),
        ("execution_policy: {run_repetitions: '3'}", "found '3', expected a whole number"),
        ("execution_policy: {fail_fast: yess}", "found 'yess', expected true or false"),
        ("runner_defaults: {retries: -1, max_turns: 0}", "runner_defaults.max_turns: found 0"),
        ("sandbox: none", "found 'none', expected 'auto', 'docker', 'bubblewrap' or 'local'"),
        ("run_timeout_seconds: 0", "found 0, expected more than 0"),
        ("mcp_servers: {a: {url: http://x, command: y}}", "a server with both 'command' and 'url' has one address"),
        ("mcp_servers: {'a:b': {command: y}}", "found 'a:b', expected the name of a server"),
        ("task_text: short", "expected 'fuzzy' or 'detailed'"),
    ],
)
def test_a_run_profile_is_refused(errors, text, expected):
    lines = errors(RunProfile, RUN + text + "\n")
    assert any(expected in line for line in lines)


@pytest.mark.parametrize(
    ("sandbox", "expected"),
    [
        ("podman", "4:10: sandbox: found 'podman', expected 'auto', 'docker', 'bubblewrap' or 'local'"),
        ("{memory: 5}", "4:11: sandbox.memory: unknown field; did you mean 'memory_mb'?"),
        ("{type: podman}", "4:17: sandbox.type: found 'podman', expected 'auto', 'docker', 'bubblewrap' or 'local'"),
    ],
)
def test_one_mistake_in_a_sandbox_is_one_problem(errors, sandbox, expected):
    assert errors(RunProfile, RUN + f"sandbox: {sandbox}\n") == [expected]


@pytest.mark.parametrize("sandbox", ["local", "{type: docker, image: 'a:1'}", "{image: 'a:1', memory_mb: 5}"])
def test_a_case_that_chooses_its_kind_of_sandbox_is_referred_to_the_profile(errors, sandbox):
    (line,) = errors(TestCaseFile, CASE + f"sandbox: {sandbox}\n")
    assert "expected image, dockerfile or compose, which all mean docker" in line
    assert line.endswith("are set in the run profile's `sandbox`")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("judges: [{judge_id: a, type: t}, {judge_id: a, type: t}]", "Duplicate judge_id 'a'"),
        (
            "judges: [{judge_id: main, type: t}]\njudge_runs: [{judge_run_id: r, judge_id: mian}]",
            "5:42: judge_runs[0].judge_id: unknown judge_id 'mian'; did you mean 'main'?",
        ),
        ("judge_runs: [{judge_run_id: r, judge_id: a}]", "unknown judge_id 'a'; there are none"),
        (
            "judges: [{judge_id: a, type: t}]\njudge_runs: [{judge_run_id: r, judge_id: a}, "
            "{judge_run_id: r, judge_id: a}]",
            "Duplicate judge_run_id 'r'",
        ),
        (
            "judges: [{judge_id: a, type: t}]\njudge_runs: [{judge_run_id: r, judge_id: a, repetitions: 2, "
            "sample_size: 3}]",
            "judge_runs[0].sample_size: sample_size (3) must not exceed repetitions (2)",
        ),
        ("aggregation: {pass_threshold: 7}", "found 7, expected at most 1"),
        ("aggregation: {method: best}", "found 'best', expected 'median', 'mean', 'majority_vote' or 'all_pass'"),
        ("judge_system_prompt: a\njudge_system_prompt_path: file.yaml", "Specify only one of"),
        ("judge_system_prompt_path: gone.md", "found 'gone.md', expected an existing file"),
        ("security_policy: {network_access: some}", "expected 'deny' or 'allow'"),
        ("mcp_tasks: {shuffle: all}", "mcp_tasks.shuffle: found 'all', expected 'axes', 'bands' or 'none'"),
        (
            "anchors: {references: [{anchor_id: a, label: l, text: t}, {anchor_id: a, label: l, text: t}]}",
            "Duplicate anchor_id 'a'",
        ),
    ],
)
def test_an_evaluation_profile_is_refused(errors, text, expected):
    (line,) = errors(EvaluationProfile, EVALUATION + text + "\n")
    assert expected in line


def test_a_system_prompt_is_the_same_from_a_file_and_inline(tmp_path):
    (tmp_path / "prompt.md").write_text("Judge well.\n")
    inline, named = tmp_path / "inline.yaml", tmp_path / "named.yaml"
    inline.write_text(EVALUATION + 'judge_system_prompt: "Judge well.\\n"\n')
    named.write_text(EVALUATION + "judge_system_prompt_path: prompt.md\n")
    assert load(inline, EvaluationProfile) == load(named, EvaluationProfile)
    assert load(named, EvaluationProfile).system_prompt == "Judge well.\n"


def test_nested_request_options_win_over_a_judges_own_fields(tmp_path):
    path = tmp_path / "profile.yaml"
    path.write_text(
        EVALUATION + "judges: [{judge_id: j, type: t, seed: 1, top_p: 1, request_options: {seed: 2, temperature: 0}}]"
    )
    assert load(path, EvaluationProfile).judges[0].options == {"seed": 2, "top_p": 1, "temperature": 0}


def test_a_key_in_place_of_a_variables_name_is_refused_and_not_shown(errors):
    (line,) = errors(ModelsFile, MODELS + "models: [{model_id: m, api_key_env: sk-proj-abc123}]\n")
    assert "expected the name of an environment variable, never a key itself" in line
    assert "abc123" not in line


def test_models_are_unique(errors):
    (line,) = errors(ModelsFile, MODELS + "models: [{model_id: a/b}, {model_id: a/b}]\n")
    assert "Duplicate model_id 'a/b'" in line


@pytest.fixture
def agent(tmp_path):
    folder = tmp_path / "agents" / "helper"
    (folder / "workspace").mkdir(parents=True)

    def write(text):
        path = folder / "agent.yaml"
        path.write_text("schema_version: 1\nagent_id: helper\ntitle: Helper\n" + text)
        return path

    return write


def test_an_agent_must_match_its_directory(agent):
    path = agent("")
    assert load(path, AgentFile).agent_id == "helper"
    other = path.parent.rename(path.parent.with_name("other"))
    with pytest.raises(ConfigError, match="found 'helper', which must match directory name 'other'"):
        load(other / "agent.yaml", AgentFile)


def test_an_agent_needs_its_workspace(agent):
    path = agent("")
    (path.parent / "workspace").rmdir()
    with pytest.raises(ConfigError, match="missing workspace directory"):
        load(path, AgentFile)


def test_an_agents_workspace_is_no_link(agent, tmp_path):
    """Links in it are not followed, so this one would leave the agent without its files."""
    path = agent("")
    (path.parent / "workspace").rename(tmp_path / "elsewhere")
    (path.parent / "workspace").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ConfigError, match=r"agent.yaml:2:11: agent_id: found a link in place of workspace/"):
        load(path, AgentFile)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("openclaw: {model_defaults: {fallbacks: [x]}}\n", "fallbacks is not supported"),
        ("openclaw: {agents_defaults: {model: {fallbacks: [x]}}}\n", "fallbacks is not supported"),
        ("openclaw: {agent: {model: x}}\n", "an agent cannot set the model"),
        ("openclaw: {agents: {}}\n", "did you mean 'agent'?"),
        (
            "openclaw: {agents_defaults: {subagents: {model: x}}}\n",
            "openclaw.agents_defaults.subagents.model: an agent cannot set the model",
        ),
        ("openclaw: {agent: {heartbeat: {model: x}}}\n", "agent.heartbeat.model: an agent cannot set"),
        (
            "openclaw: {agents_defaults: {imageModel: {primary: x}}}\n",
            "agents_defaults.imageModel: an agent cannot set",
        ),
        ("openclaw: {agents_defaults: {models: {a/b: {alias: c}}}}\n", "agents_defaults.models: an agent cannot set"),
        (
            "openclaw: {agents_defaults: {pdfModel: {fallbacks: [x]}}}\n",
            "agents_defaults.pdfModel.fallbacks: fallbacks is not supported",
        ),
        ("openclaw: {agent: {memory: {search: {fallback: openai}}}}\n", "search.fallback: fallback is not supported"),
        (
            "openclaw: {model_defaults: {primary_params: {models: [x, y]}}}\n",
            "model_defaults.primary_params.models: an agent cannot set the model",
        ),
        (
            "openclaw: {agent: {tools: [{apiKey: sk}]}}\n",
            "agent.tools[0].apiKey: an agent has no endpoint and no key",
        ),
        ("openclaw: {agents_defaults: {memory: {baseUrl: x}}}\n", "memory.baseUrl: an agent has no endpoint"),
        ("openclaw: {model_defaults: {primary_params: 3}}\n", "primary_params: found 3, expected a mapping"),
        ("openclaw: {model_defaults: {primary_params: {temperature: 3}}}\n", "primary_params.temperature: found 3"),
        ("openclaw: {agent: {id: --help}}\n", "openclaw.agent.id: found '--help', expected at most 64 lower-case"),
        ("openclaw: {agent: {prompt: 3}}\n", "openclaw.agent.prompt: found 3, expected a text"),
        ("openclaw: {agent: {workspace: /}}\n", "openclaw.agent.workspace: an agent works in the run's own folder"),
    ],
)
def test_an_agent_runs_on_the_one_model_it_is_given(agent, text, expected):
    with pytest.raises(ConfigError) as error:
        load(agent(text), AgentFile)
    assert expected in str(error.value)


def test_fields_that_resemble_a_model_are_valid(agent):
    fragments = (
        "openclaw: {agents_defaults: {modelPolicy: {allow: [x]}, experimental: {localModelLean: true}, model: null},"
        " agent: {memory: {search: {fallback: none}}}, model_defaults: {aliases: {default: fast},"
        " primary_params: {provider: {order: [x]}, reasoning: {effort: low}}}}\n"
    )
    assert load(agent(fragments), AgentFile).openclaw.agents_defaults["model"] is None


def test_all_problems_of_an_agent_are_reported_at_once(agent):
    text = "openclaw: {agent: {model: x, id: 7, subagents: {model: y}}, agents_defaults: {imageModel: z}}\n"
    with pytest.raises(ConfigError) as error:
        load(agent(text), AgentFile)
    assert len(str(error.value).splitlines()) == 4


@pytest.mark.parametrize("name", ["../agents/helper", "../agents/helper/agent.yaml"])
def test_an_agent_is_named_by_its_path_from_the_file_that_names_it(agent, tmp_path, name):
    folder = agent("").parent
    path = folder.parents[1] / "run_profiles/p.yaml"
    path.parent.mkdir()
    path.write_text(RUN + f"openclaw: {{agent_id: {name}, image: 'a:1', timeout_seconds: 5}}\n")
    block = load(path, RunProfile).openclaw
    assert block is not None
    assert block.agent_id == str(folder)


def test_an_agent_that_is_named_by_neither_id_nor_path(errors):
    [line] = errors(RunProfile, RUN + "openclaw: {agent_id: A b, image: 'a:1', timeout_seconds: 5}\n")
    assert "openclaw.agent_id: found 'A b', expected a slug" in line


def test_profiles_that_a_session_does_not_name():
    assert RunProfile.default().execution_policy.max_concurrency == 16
    assert not RunProfile.default().execution_policy.stop_on_runner_error
    assert EvaluationProfile.default().judges == ()
