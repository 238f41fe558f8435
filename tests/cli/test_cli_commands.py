from __future__ import annotations

import json
import os
import re
import subprocess
import sys

import pytest
from support.research_project import ResearchProject, criteria, report

from pytest_agentbench.cli import COMMANDS, main

CASE = """\
schema_version: 1
case_id: {id}
title: A case
runner: {{type: llm_probe}}
input:
  messages: [{{role: user, content: Hello}}]
tags: [smoke]
deterministic_checks:
  - check_id: answered
    declarative: {{kind: final_response_present}}
"""


@pytest.fixture
def tree(tmp_path, monkeypatch):
    """Writes files below a project folder, which is the current one."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pyproject.toml").touch()

    def write(**files):
        for name, text in files.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return tmp_path

    return lambda files: write(**files)


@pytest.fixture
def run(capsys):
    def call(*argv):
        code = main([str(argument) for argument in argv])
        captured = capsys.readouterr()
        return code, captured.out.splitlines(), captured.err.splitlines()

    return call


GOOD = {
    "cases/one/test.yaml": CASE.format(id="one"),
    "cases/one/messages.yaml": "- not: ours\n",
    "cases/math.jsonl": '{"id": "q1", "question": "2 + 2?", "answer": "4", "tags": ["easy"]}\n',
    "suites/smoke.yaml": "schema_version: 1\nsuite_id: smoke\ntitle: S\n"
    "case_selection: {include_case_ids: [one, cases/math.q1]}\n",
    "run_profiles/standard.yaml": "schema_version: 1\nrun_profile_id: standard\ntitle: S\n",
    "models.yaml": "schema_version: 1\nmodels: [{model_id: demo}]\n",
    "unrelated.yaml": "any: thing\n",
}


def test_a_sound_tree_is_valid(tree, run):
    tree(GOOD)
    root = f"configuration root: {tree({})} (the outermost folder with configuration around the paths)"
    assert run("validate") == (0, ["5 files checked, 2 cases: 0 errors, 0 warnings"], [root])
    assert run("validate", "suites/smoke.yaml", "cases")[0] == 0


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("cases/one/test.yaml", CASE.format(id="ONE"), "cases/one/test.yaml:2:10: case_id: found 'ONE'"),
        ("cases/two/test.yaml", CASE.format(id="one"), "cases/two/test.yaml:2:10: case_id: Duplicate case_id 'one'"),
        ("cases/math.jsonl", '{"id": "q1", "question": "2"}\n{"id": "q2"}\n', "cases/math.jsonl:2:1: question"),
        (
            "suites/smoke.yaml",
            "schema_version: 1\nsuite_id: smoke\ntitle: S\ncase_selection: {include_case_ids: [one, tow]}\n",
            "suites/smoke.yaml:4:42: case_selection.include_case_ids[1]: no case has the id 'tow'",
        ),
        (
            "suites/smoke.yaml",
            "schema_version: 1\nsuite_id: smoke\ntitle: S\nopenclaw:\n  agent_assignments:\n"
            "    - {agent_id: ghost, case_selection: {include_tags: [smoke]}}\n",
            "suites/smoke.yaml:6:18: openclaw.agent_assignments[0].agent_id:",
        ),
        (
            "run_profiles/claw.yaml",
            "schema_version: 1\nrun_profile_id: claw\ntitle: S\n"
            "openclaw: {agent_id: ghost, image: 'a:1', timeout_seconds: 5}\n",
            "run_profiles/claw.yaml:4:22: openclaw.agent_id:",
        ),
        (
            "run_profiles/twin.yaml",
            "schema_version: 1\nrun_profile_id: standard\ntitle: S\n",
            "run_profiles/twin.yaml:2:17: run_profile_id: 'standard' is ambiguous",
        ),
        ("by_shape.yaml", "schema_version: 1\nsuite_id: Smoke\ntitle: S\n", "by_shape.yaml:2:11: suite_id"),
        ("models.yaml", "schema_version: 1\nmodels: [{}]\n", "models.yaml:2:10: models[0].model_id"),
        ("suites/broken.yaml", "a: [", "suites/broken.yaml:1:4: not valid YAML"),
        ("cases/one/demo.yaml", "schema_version: 1\nreplies: [{contant: x}]\n", "cases/one/demo.yaml:2:12: replies"),
    ],
)
def test_errors_are_printed_with_their_places(tree, run, name, text, expected):
    root = tree(GOOD | {name: text})
    code, lines, _ = run("validate")
    assert code == 1
    assert any(line.startswith(f"{root}/{expected}") for line in lines), lines
    assert "error" in lines[-1]
    assert not lines[-1].endswith("0 errors, 0 warnings")


def test_rows_of_two_datasets_cannot_share_an_id(tree, run):
    row = '{"id": "ID", "question": "2?", "answer": "4"}\n'
    root = tree({"a.b.jsonl": row.replace("ID", "c"), "a.jsonl": row.replace("ID", "b.c")})
    code, lines, _ = run("validate")
    assert code == 1
    assert lines[0] == f"{root}/a.jsonl:1:1: Duplicate case_id 'a.b.c'; {root}/a.b.jsonl has it too"


def test_one_bad_file_does_not_hide_the_others(tree, run):
    tree(GOOD | {"cases/two/test.yaml": "[", "cases/three/test.yaml": CASE.format(id="3 4"), "suites/x.yaml": ""})
    code, lines, _ = run("validate")
    assert (code, len(lines)) == (1, 4)


def test_a_name_that_a_conftest_registers_in_plain_sight_is_no_doubt(tree, run):
    conftest = 'def pytest_agentbench_runners():\n    if True:\n        return {"my_runner": object()}\n    return {}\n'
    case = CASE.format(id="one").replace("llm_probe", "my_runner")
    tree({"cases/one/test.yaml": case, "conftest.py": conftest})
    assert run("validate")[1][-1].endswith("0 errors, 0 warnings")
    tree({"cases/one/test.yaml": case.replace("my_runner", "mi_runner"), "conftest.py": conftest})
    assert "the runner 'mi_runner' is not built in" in run("validate")[1][0]


def test_doubtful_names_and_checks_are_warnings(tree, run):
    case = CASE.format(id="one").replace("llm_probe", "my_runner") + (
        "  - check_id: report\n    declarative: {kind: file_exists, path: report.md}\n"
        "  - check_id: text\n    declarative: {kind: file_contains, path: report.md, text: Done}\n"
        "  - check_id: other\n    declarative: {kind: file_contains, path: report.md, text: Missing}\n"
    )
    conftest = "def pytest_agentbench_runners(): ...\n"
    tree({"cases/one/test.yaml": case, "cases/one/report.md": "Done", "conftest.py": conftest})
    code, lines, _ = run("validate")
    assert (code, len(lines)) == (0, 4)
    assert "test.yaml:1:1: warning: check 'report': report.md in the case's folder satisfies it" in lines[0]
    assert "check 'text'" in lines[1]
    assert "the runner 'my_runner' is not built in" in lines[2]


def test_turns_of_a_runner_that_a_conftest_may_add_are_no_error(tree, run):
    turns = "turns: [{role: user, content: More}]\n  messages:"
    case = CASE.format(id="one").replace("llm_probe", "my_runner").replace("messages:", turns)
    tree({"cases/one/test.yaml": case, "cases/conftest.py": "def pytest_agentbench_runners(): ...\n"})
    code, lines, _ = run("validate")
    assert code == 0
    assert "the runner 'my_runner' is not built in" in lines[0]


def test_a_file_of_no_known_kind_is_an_error_when_it_is_named(tree, run):
    tree(GOOD)
    code, lines, _ = run("validate", "unrelated.yaml")
    assert code == 1
    assert "unrelated.yaml:1:1: found no kind of file that is known" in lines[0]


def test_cases_are_listed_one_a_line_when_piped(tree, run):
    tree(GOOD)
    assert run("list") == (
        0,
        [
            "cases/math.q1\teasy\tllm_probe\texact_match>=1\tcases/math.jsonl\t1",
            "one\tsmoke\tllm_probe\tfinal_response_present\tcases/one/test.yaml\t1",
        ],
        [],
    )


def test_cases_are_listed_as_json(tree, run):
    tree(GOOD)
    code, lines, _ = run("list", "cases/one", "--json")
    assert code == 0
    assert json.loads("\n".join(lines)) == [
        {
            "case_id": "one",
            "tags": ["smoke"],
            "runner": "llm_probe",
            "decided_by": ["final_response_present"],
            "path": "cases/one/test.yaml",
            "line": 1,
        }
    ]


def test_a_terminal_gets_a_table(tree, run, monkeypatch):
    tree(GOOD)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    lines = [re.sub("\x1b\\[[0-9;]*m", "", line) for line in run("list")[1]]
    assert any(line.split() == ["case", "tags", "runner", "decided", "by"] for line in lines)
    assert lines[-1] == "2 cases"


def test_a_case_that_cannot_be_listed_is_named_and_the_rest_is_listed(tree, run):
    root = tree(GOOD | {"cases/two/test.yaml": "["})
    code, lines, errors = run("list")
    assert (code, len(lines)) == (1, 2)
    assert errors[0].startswith(f"{root}/cases/two/test.yaml:1:1: not valid YAML")


def test_no_control_character_reaches_the_terminal(tree, run):
    tree({"cases/one/test.yaml": CASE.format(id="one").replace("[smoke]", '["a\\e[31m\\tb"]')})
    _, lines, _ = run("list")
    assert lines[0].split("\t")[1] == "a\\x1b[31m  b"


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ("rubric: {}\n", ["judge"]),
        ("metrics: [{name: exact_match, threshold: 0.5}, {name: similarity}]\n", ["exact_match>=0.5"]),
        ("rubric: {}\nthresholds: {pass_rate: 0.8}\n", ["judge", "pass_rate>=0.8"]),
        ("thresholds: {pass_rate: 0.8}\n", ["nothing"]),
        ("report_only: true\n", ["report only"]),
        ("", ["nothing"]),
    ],
)
def test_list_shows_the_checks_of_a_case(tree, run, more, expected):
    tree({"test.yaml": CASE.format(id="one").split("deterministic_checks")[0] + more})
    _, lines, _ = run("list", "--json")
    assert json.loads("\n".join(lines))[0]["decided_by"] == expected


@pytest.mark.slow
def test_schemas_are_printed_and_written(run, tmp_path):
    code, lines, _ = run("schema", "suite")
    assert code == 0
    schema = json.loads("\n".join(lines))
    assert schema["title"] == "pytest-agentbench suite"
    assert run("schema", "--output", tmp_path / "new" / "schemas")[0] == 0
    assert json.loads((tmp_path / "new" / "schemas" / "suite.schema.json").read_text()) == schema
    written = {path.name.removesuffix(".schema.json") for path in (tmp_path / "new" / "schemas").iterdir()}
    assert written == {
        *("test_case", "dataset", "reports", "suite", "run_profile", "evaluation_profile", "agent", "agent_program"),
        *("models", "servers", "keys", "demo", "dataset_demo", "report", "json_lines"),
    }


@pytest.mark.slow
def test_errors_of_a_command_go_to_stderr(run, tmp_path):
    assert run("schema", "siute") == (1, [], ["there is no schema 'siute'; did you mean 'suite'?"])
    code, lines, errors = run("validate", tmp_path / "gone")
    assert (code, lines) == (1, [])
    assert "there is no such file or folder" in errors[0]


@pytest.mark.parametrize("argv", [[], ["nope"], ["list", "--nope"], ["schema", "a", "b"]])
def test_wrong_usage_ends_with_status_2(argv):
    with pytest.raises(SystemExit) as stopped:
        main(argv)
    assert stopped.value.code == 2


def test_help_names_every_command_and_imports_none_of_them():
    code = (
        "import sys\nfrom pytest_agentbench.cli import main\n"
        "try: main(['--help'])\nexcept SystemExit: pass\n"
        "heavy = {'pydantic', 'yaml', 'openai', 'rich', 'pytest'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert all(name in done.stdout for name in COMMANDS)


@pytest.mark.slow
def test_a_reader_that_stops_early_is_no_error(tree):
    rows = "\n".join(json.dumps({"question": f"{number}?", "answer": "x"}) for number in range(5_000))
    root = tree({"rows.jsonl": rows})
    command = [sys.executable, "-m", "pytest_agentbench.cli", "list", str(root)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=root)
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.readline()
    process.stdout.close()
    assert process.stderr.read() == b""
    process.stderr.close()
    assert process.wait() == 0


@pytest.mark.parametrize("command", ["list", "validate"])
def test_a_folder_that_cannot_be_read_hides_no_other(tree, capsys, command):
    root = tree({"cases/a/test.yaml": CASE.format(id="a"), "cases/b/one.jsonl": '{"question": "q", "answer": "a"}\n'})
    (root / "cases" / "a").chmod(0)
    try:
        if os.access(root / "cases" / "a", os.R_OK):
            pytest.skip("this user reads everything")
        assert main([command, "cases"]) == 1
    finally:
        (root / "cases" / "a").chmod(0o700)
    said = capsys.readouterr()
    assert "cannot be read: Permission denied" in said.out + said.err
    assert ("b/one.item_1" if command == "list" else "1 case:") in said.out


AGENT = "schema_version: 1\nagent_id: writer\ntitle: Writer\n"


def test_an_agents_workspace_that_cannot_be_copied_is_an_error(tree, run):
    root = tree({"agents/writer/agent.yaml": AGENT, "agents/writer/workspace/AGENTS.md": "# Mine\n"})
    assert run("validate")[0] == 0
    os.mkfifo(root / "agents/writer/workspace/pipe")
    code, lines, _ = run("validate")
    assert code == 1
    assert lines[0].startswith(f"{root}/agents/writer/agent.yaml:1:1: {root}/agents/writer/workspace/pipe: found ")


def test_two_agents_with_one_id_are_an_error(tree, run):
    root = tree({f"agents/writer/agent.{suffix}": AGENT for suffix in ("yaml", "yml")})
    (root / "agents/writer/workspace").mkdir()
    code, lines, _ = run("validate")
    assert code == 1
    assert "agents/writer/agent.yaml:2:11: agent_id: 'writer' is ambiguous" in lines[0]


def test_an_agents_workspace_that_is_too_large_is_an_error(tree, run):
    root = tree({"agents/writer/agent.yaml": AGENT, "agents/writer/workspace/AGENTS.md": "# Mine\n"})
    with open(root / "agents/writer/workspace/huge", "wb") as file:
        file.truncate(2**40)
    code, lines, _ = run("validate")
    assert code == 1
    assert "agents/writer/agent.yaml:1:1: " in lines[0]
    assert "this workspace template is too large" in lines[0]


def test_overlapping_assignments_are_an_error(tree, run):
    suite = (
        "schema_version: 1\nsuite_id: s\ntitle: S\nopenclaw:\n  agent_assignments:\n"
        "    - {agent_id: writer, case_selection: {include_tags: [smoke]}}\n"
        "    - {agent_id: ../agents/writer, case_selection: {include_case_ids: [one]}}\n"
    )
    files = {"agents/writer/agent.yaml": AGENT, "agents/writer/workspace/AGENTS.md": "", "suites/s.yaml": suite}
    root = tree(files | {"cases/one/test.yaml": CASE.format(id="one")})
    code, lines, _ = run("validate")
    assert code == 1
    assert lines[0].startswith(f"{root}/suites/s.yaml:7:52: openclaw.agent_assignments[1].case_selection: case 'one'")
    assert len(lines) == 2


def test_research_reports_are_listed_and_validated(run, tmp_path):
    project = ResearchProject(tmp_path / "cases")
    project.reports(thresholds={"race": 0.5})
    code, lines, errors = run("list", tmp_path / "cases")
    assert (code, errors) == (0, [])
    assert [line.split("\t")[0] for line in lines] == ["drb.1", "drb.2"]
    assert all("race>=0.5" in line for line in lines)
    code, lines, _ = run("validate", tmp_path / "cases")
    assert (code, lines[-1]) == (0, "1 file checked, 2 cases: 0 errors, 0 warnings")
    project.rows("criteria.jsonl", criteria(2))
    project.rows("raw/gpt.jsonl", report(1), report(2), "{")
    code, lines, _ = run("validate", tmp_path / "cases")
    assert code == 1
    assert "found no row with the prompt of 1" in lines[0]
    assert "gpt.jsonl:3:" in lines[1]
    code, lines, errors = run("list", tmp_path / "cases")
    assert (code, len(lines), len(errors)) == (1, 1, 2)
    project.reports(thresholds={"rase": 1})
    assert any("thresholds.rase" in line for line in run("validate", project.folder / "reports.yaml")[1])
