"""`agentbench validate` accepts a folder if and only if a session of pytest runs its cases."""

from __future__ import annotations

import shutil

import pytest
from support.sessions import bench, import_rooms

from pytest_agentbench.cli import main
from pytest_agentbench.cli.additions import additions_for

__all__ = ["bench"]

import_rooms()

ANSWER = {"schema_version": 1, "replies": [{"content": "Paris"}]}
ASKED = {"messages": [{"role": "user", "content": "Where is the Louvre?"}]}
JUDGED = {
    "schema_version": 1,
    "evaluation_profile_id": "judged",
    "title": "Judged",
    "judges": [{"judge_id": "chat", "type": "llm_probe", "model": "demo"}],
    "judge_runs": [{"judge_run_id": "once", "judge_id": "chat"}],
}
JUDGE = {"summary": "fine", "overall": {"score": 9, "evidence": ["It is."]}}


@pytest.fixture
def both(bench, capsys, monkeypatch):
    """Return the problems by a session with the scripted model, and by `validate`; empty if all cases run."""

    def run(*options: str, named: str = "cases") -> tuple[str, list[str]]:
        session = bench.run(named, "--model=demo", *options)
        monkeypatch.chdir(bench.path)
        capsys.readouterr()
        profile = [f"--evaluation-profile={each.partition('=')[2]}" for each in options if "evaluation" in each]
        code = main(["validate", named, *profile])
        lines = capsys.readouterr().out.splitlines()
        assert code == (1 if " 0 errors" not in lines[-1] else 0)
        assert (session.exit == 0) == (code == 0), (session.text, lines)
        return session.text if code else "", lines

    return run


def write_case(bench, case_id="one", **fields):
    bench.case(case_id, **fields)
    bench.write(f"cases/{case_id}/demo.yaml", ANSWER)


WRONG = {
    "nothing decides": ({"deterministic_checks": None}, "nothing decides this case"),
    "no messages": ({"input": {"messages": []}}, "input.messages: found none"),
    "a binary attachment": ({"input": {**ASKED, "attachments": ["a.bin"]}}, "'a.bin', which is not UTF-8 text"),
    "an unknown check": (
        {"deterministic_checks": [{"check_id": "a", "declarative": {"kind": "file_exist", "path": "x"}}]},
        "unknown check kind 'file_exist'; did you mean 'file_exists'?",
    ),
    "an unknown runner": ({"runner": {"type": "llm_prob"}}, "unknown runner 'llm_prob'; did you mean 'llm_probe'?"),
    "an unknown tool": (
        {"input": {**ASKED, "context": {"llm_probe": {"tools": ["exec_shel"]}}}},
        "unknown tool 'exec_shel'; did you mean 'exec_shell'?",
    ),
    "an unknown metric": (
        {"reference": "Paris", "metrics": [{"name": "exact_mach", "threshold": 1}]},
        "unknown metric 'exact_mach'; did you mean 'exact_match'?",
    ),
    "a metric's wrong option": (
        {"reference": "Paris", "metrics": [{"name": "exact_match", "threshold": 1, "args": {"cas": 1}}]},
        "metric exact_match: args: got an unexpected keyword argument 'cas'",
    ),
    "a server that nobody declares": ({"mcp_servers": ["Weather"]}, "no MCP server 'Weather' is declared"),
    "hooks that are off": (
        {
            "deterministic_checks": [
                {"check_id": "a", "python_hook": {"import_path": "os.path", "callable_name": "exists"}}
            ]
        },
        "its only checks are Python hooks, which are off",
    ),
}


def test_a_case_with_turns_and_without_messages_is_valid(bench, both):
    write_case(bench, input={"turns": [{"role": "user", "content": text} for text in ("Paris?", "Rome?")]})
    assert both()[1][-1].endswith("1 case: 0 errors, 0 warnings")


def test_a_case_that_no_session_runs_is_an_error(bench, both):
    for number, (fields, _) in enumerate(WRONG.values()):
        write_case(bench, f"case{number}", **fields)
        (bench.path / f"cases/case{number}/a.bin").write_bytes(b"\xff\x00")
    session, lines = both()
    assert all(f"{bench.path}/cases/case" in line for line in lines[:-1])
    for number, (_, message) in enumerate(WRONG.values()):
        assert message in session
        place = f"{bench.path}/cases/case{number}/test.yaml:"
        assert sum(place in line and message in line for line in lines) == 1


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"deterministic_checks": None, "report_only": True},
        {"input": {**ASKED, "attachments": ["a.txt"]}},
        {"reference": "Paris", "deterministic_checks": None, "metrics": [{"name": "exact_match", "threshold": 1}]},
    ],
)
def test_a_case_that_runs_is_no_error(bench, both, fields):
    write_case(bench, **fields)
    bench.write("cases/one/a.txt", "The Louvre is a museum.")
    assert both()[1] == ["1 file checked, 1 case: 0 errors, 0 warnings"]


def test_rows_without_answers_are_one_error(bench, both):
    bench.rows("cases/rows.jsonl", *({"id": f"q{n}", "question": f"{n}?"} for n in range(3)))
    session, lines = both()
    assert "3 errors in" in session
    assert "there is nothing to score against: the row" in session
    assert "rows.jsonl:1:1: there is nothing to score against" in lines[0]
    assert lines[0].endswith("(and 2 more rows)")
    assert lines[1:] == ["1 file checked, 3 cases: 1 error, 0 warnings"]


def test_both_refuse_equal_ids_of_rows_of_two_files(bench, both):
    bench.rows("cases/a.b.jsonl", {"id": "c", "question": "2?", "answer": "4"})
    bench.rows("cases/a.jsonl", {"id": "b.c", "question": "2?", "answer": "4"})
    session, lines = both()
    assert "Duplicate case_id" in session
    assert "Duplicate case_id" in lines[0]
    assert len(lines) == 2


def test_both_refuse_equal_names_of_two_datasets(bench, both):
    for folder in ("one", "two"):
        bench.rows(f"cases/{folder}/rows.jsonl", {"id": folder, "question": "2?", "answer": "4"})
        bench.write(f"cases/{folder}/dataset.yaml", {"schema_version": 1, "name": "same", "files": ["rows.jsonl"]})
    session, lines = both()
    assert "name: found 'same', which" in session
    assert "name: found 'same', which" in lines[0]
    assert len(lines) == 2


def test_a_rubric_needs_a_judge(bench, both):
    write_case(bench, deterministic_checks=None, rubric={})
    assert "nothing decides this case" in both()[0]


def test_a_judge_of_the_root_is_enough_to_decide_a_case(bench, both):
    write_case(bench, deterministic_checks=None, rubric={})
    bench.write("cases/one/demo.yaml", {**ANSWER, "judge": JUDGE})
    bench.write("cases/evaluation_profiles/judged.yaml", JUDGED)
    both("--agentbench-evaluation-profile=judged")
    assert main(["validate", str(bench.path / "cases")]) == 0  # there is a session that runs it


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"judges": [{"judge_id": "chat", "type": "llm_prob", "model": "demo"}]}, "judges[0].type: unknown judge type"),
        ({"judge_runs": [{"judge_run_id": "once", "judge_id": "cat"}]}, "judge_runs[0].judge_id: unknown judge_id"),
        ({"metrics": [{"name": "exact_mach"}]}, "metrics[0].name: unknown metric 'exact_mach'"),
    ],
)
def test_an_evaluation_profile_is_refused_by_both(bench, both, change, message):
    write_case(bench)
    bench.write("cases/evaluation_profiles/judged.yaml", JUDGED | change)
    session, lines = both("--agentbench-evaluation-profile=judged")
    assert message in session
    assert any("evaluation_profiles/judged.yaml:" in line and message in line for line in lines)


def test_all_problems_of_a_profile_are_reported_at_once(bench, capsys):
    path = bench.write(
        "cases/evaluation_profiles/judged.yaml",
        """\
schema_version: 1
evaluation_profile_id: judged
titel: Judged
judges:
  - {judge_id: chat, type: llm_probe, model: demo, temperature: 3}
  - {judge_id: chat, type: llm_prob}
judge_runs:
  - {judge_run_id: once, judge_id: cat, repetitions: 0}
judge_system_prompt: Judge.
judge_system_prompt_path: gone.md
""",
    )
    assert main(["validate", str(path)]) == 1
    told = [line.removeprefix(f"{path}:") for line in capsys.readouterr().out.splitlines()]
    assert [line.split(" found")[0].split("; ")[0].split(" (")[0] for line in told[:-1]] == [
        "1:1: title: missing",
        "3:1: titel: unknown field",
        "5:65: judges[0].temperature:",
        "6:28: judges[1].type: unknown judge type 'llm_prob'",
        "8:36: judge_runs[0].judge_id: unknown judge_id 'cat'",
        "8:54: judge_runs[0].repetitions:",
        "9:22: judge_system_prompt: Specify only one of 'judge_system_prompt_path' and 'judge_system_prompt'",
        "10:27: judge_system_prompt_path:",
    ]


def test_a_case_in_a_file_that_pytest_leaves_alone_is_an_error(bench, capsys):
    write_case(bench)
    shutil.copy(bench.path / "cases/one/test.yaml", bench.path / "cases/tests.yaml")
    bench.run("cases", "--model=demo").result.assert_outcomes(passed=1)
    assert main(["validate", str(bench.path / "cases")]) == 1
    said = "cases/tests.yaml:1:1: found a test case in a file that pytest does not collect, expected the name test.yaml"
    assert said in capsys.readouterr().out


def test_the_files_of_a_hidden_test_are_no_cases(bench, both):
    write_case(bench)
    bench.write("cases/one/verify/sub/test.yaml", "case_id: [")
    assert both()[1] == ["1 file checked, 1 case: 0 errors, 0 warnings"]


def test_an_empty_folder_is_an_error(bench, both):
    (bench.path / "cases").mkdir()
    _, lines = both()
    assert lines[0].startswith(f"{bench.path}/cases:1:1: found nothing to check, expected cases (test.yaml, ")


def test_names_that_a_conftest_may_add_are_warnings(bench, both):
    write_case(bench, runner={"type": "mine"}, input={"messages": []}, deterministic_checks=None)
    bench.agent(
        """
import pytest

async def mine(case, context):
    return "Paris"

def pytest_agentbench_runners():
    return {"mine": mine}

def pytest_agentbench_graders():
    from pytest_agentbench.engine.grading import Grade, Grader

    class Content(Grader):
        decides = True

        async def grade(self, request):
            return Grade()

    return {"content": Content()}
"""
    )
    _, lines = both()
    assert [line.split(" warning: ")[1][:40] for line in lines[:-1]] == [
        "nothing decides this case; give it a che",
    ]


MISSPELT = '{"id": "a", "Question": "Where?", "answer": "Paris"}\n'
NO_ROW = "rows.jsonl:1:1: found the field 'Question' in the first row, expected 'question'; correct it, or no row"


@pytest.mark.slow
def test_a_misspelt_first_row_is_doubted_by_both(bench, both):
    write_case(bench)
    bench.write("cases/data/rows.jsonl", MISSPELT)
    bench.write("cases/described/rows.jsonl", MISSPELT)
    descriptor = {"schema_version": 1, "files": ["rows.jsonl"], "fields": {"question": "Question"}}
    bench.write("cases/described/dataset.yaml", descriptor)
    bench.write("cases/described/rows.demo.yaml", {"schema_version": 1, "default": "Paris"})
    _, lines = both()
    assert [line for line in lines if "'Question'" in line] == [lines[0]]
    assert lines[0].startswith(f"{bench.path}/cases/data/{NO_ROW.replace(':1:1:', ':1:1: warning:')}")
    text = bench.run("cases", "--model=demo").text
    assert text.count("'Question'") == 1
    assert NO_ROW in text


def test_where_only_a_misspelt_row_is_it_is_an_error_of_both(bench, both):
    bench.write("cases/rows.jsonl", MISSPELT)
    session, lines = both()
    assert NO_ROW in session
    assert lines[0].startswith(f"{bench.path}/cases/{NO_ROW}")
    assert len(lines) == 2


def test_both_warn_of_judges_without_runs(bench, both):
    write_case(bench)
    path = bench.write("cases/evaluation_profiles/judged.yaml", {**JUDGED, "judge_runs": []})
    said = "judges: found no judge_runs, so no judge is asked; add judge_runs that name them"
    _, lines = both("--agentbench-evaluation-profile=judged")
    place = next(line for line in lines if said in line).removeprefix(f"{path}:").partition(" ")[0]
    assert f"{place} warning: {said}" in lines[0]
    assert said in bench.run("cases", "--model=demo", "--agentbench-evaluation-profile=judged").text


def write_suite(bench, **selection):
    suite = {"schema_version": 1, "suite_id": "s", "title": "S", "models": [{"model_id": "demo"}]}
    return bench.write("cases/suites/s.yaml", {**suite, "case_selection": selection})


def test_a_tag_that_no_case_has_is_doubted_by_both(bench, capsys):
    write_case(bench, tags=["easy"])
    path = write_suite(bench, include_tags=["easy", "hard"])
    finished = bench.run("cases", "--agentbench-suite=s")
    said = "case_selection.include_tags[1]: no case has the tag 'hard'"
    assert (finished.exit, said in finished.text) == (0, True)
    capsys.readouterr()
    assert main(["validate", str(bench.path / "cases")]) == 0
    line = capsys.readouterr().out.splitlines()[0]
    assert line.startswith(f"{path}:")
    assert f" warning: {said}" in line


@pytest.mark.parametrize(
    ("selection", "said"),
    [
        ({"include_tags": ["hard"]}, "case_selection.include_tags[0]: no case has the tag 'hard'"),
        (
            {"include_tags": ["easy"], "exclude_tags": ["easy"]},
            "case_selection: selects no case; change the tags or ids",
        ),
    ],
)
def test_a_suite_of_no_case_is_an_error_of_both(bench, capsys, selection, said):
    write_case(bench, tags=["easy"])
    path = write_suite(bench, **selection)
    finished = bench.run("cases", "--agentbench-suite=s")
    assert finished.exit != 0
    assert said in finished.text
    capsys.readouterr()
    assert main(["validate", str(bench.path / "cases")]) == 1
    line = capsys.readouterr().out.splitlines()[0]
    assert line.startswith(f"{path}:")
    assert said in line


def test_a_project_without_a_mark_is_where_the_command_is_run(bench, capsys, monkeypatch):
    (bench.path / "pytest.ini").unlink(missing_ok=True)
    (bench.path / "pyproject.toml").unlink(missing_ok=True)
    bench.agent("def pytest_agentbench_metrics():\n    return {'mine': lambda ground_truth, prediction, **_: 1.0}\n")
    bench.write(
        "models.yaml",
        {
            "schema_version": 1,
            "models": [{"model_id": "m", "base_url": "http://127.0.0.1:9/v1", "api_key_env": "none"}],
        },
    )
    write_case(bench, deterministic_checks=None, reference="x", metrics=[{"name": "mine", "threshold": 1}])
    monkeypatch.chdir(bench.path)
    assert main(["validate", "cases"]) == 0
    capsys.readouterr()
    assert main(["validate", "cases", "--model", "m", "--show-request", "one"]) == 0
    assert "POST http://127.0.0.1:9/v1/chat/completions" in capsys.readouterr().out
    bench.agent("async def run(case, context): ...\ndef pytest_agentbench_runners():\n    return {'own': run}\n")
    write_case(bench, runner={"type": "own"})
    additions_for.cache_clear()
    assert main(["validate", "cases", "--model", "m", "--show-request", "one"]) == 1
    assert "one/test.yaml:1:1: the requests of the runner own are known only to a session" in capsys.readouterr().err
