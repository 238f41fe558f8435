from __future__ import annotations

import json

import pytest
import yaml

from pytest_agentbench.cli import main


@pytest.fixture
def project(tmp_path, monkeypatch):
    """Write a data file and, with any settings, a dataset.yaml next to it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pyproject.toml").touch()

    def write(*rows, **descriptor):
        (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        if descriptor:
            settings = {"schema_version": 1, "files": ["rows.jsonl"], **descriptor}
            kept = {key: value for key, value in settings.items() if value is not None}
            (tmp_path / "dataset.yaml").write_text(yaml.safe_dump(kept, sort_keys=False))
        return tmp_path

    return write


@pytest.fixture
def validate(capsys, tmp_path):
    def call(*paths):
        code = main(["validate", *map(str, paths)])
        return code, [line.replace(f"{tmp_path}/", "") for line in capsys.readouterr().out.splitlines()]

    return call


ADDING = "def pytest_agentbench_runners(): ...\n\n\ndef pytest_agentbench_metrics(): ...\n"
ROW = {"id": "a", "question": "How many?", "answer": "4"}


def test_doubtful_rows_are_warnings_with_their_lines(project, validate):
    project(
        ROW,
        {"question": "Which city?", "answer": "n/a"},
        {"question": "Caf\u00c3\u00a9?", "answer": "x"},
        {**ROW, "id": "b"},
    )
    code, lines = validate()
    assert code == 0
    assert lines == [
        "rows.jsonl:2:1: warning: answer: found 'n/a', which looks like no answer; "
        "write the right one or remove the row",
        "rows.jsonl:3:1: warning: question: found 'CafÃ©?', which is 'Café?' in UTF-8, read as Windows-1252; "
        "read it as UTF-8",
        "rows.jsonl:4:1: warning: question: found 'How many?' again, first on line 1; it counts twice, remove one",
        "1 file checked, 4 cases: 0 errors, 3 warnings",
    ]


def test_bad_rows_are_errors_and_the_others_are_looked_at(project, validate):
    project(ROW, {"question": 1}, {"question": "Which city?", "answer": "tbd"}, ROW)
    code, lines = validate("rows.jsonl")
    assert code == 1
    assert [line.split(" ")[0] for line in lines[:-1]] == ["rows.jsonl:2:1:", "rows.jsonl:4:1:", "rows.jsonl:3:1:"]
    assert lines[-1] == "1 file checked, 2 cases: 2 errors, 1 warning"


@pytest.mark.parametrize("named", ["dataset.yaml", "rows.jsonl", "."])
def test_a_descriptor_is_checked_with_its_rows(project, validate, named):
    project(
        {"problem": "2 + 2?", "solution": "-"},
        {"problem": "3 + 3?", "solution": "6"},
        fields={"question": "problem", "answer": "solution"},
        few_shot={"examples": [{"question": "3 + 3 ?", "answer": "6"}]},
    )
    code, lines = validate(named)
    assert code == 0
    assert lines[0].startswith("rows.jsonl:1:1: warning: answer: found '-'")
    assert lines[1].startswith("rows.jsonl:2:1: warning: question: found '3 + 3?', which few_shot shows")
    assert lines[2] == "1 file checked, 2 cases: 0 errors, 2 warnings"


@pytest.mark.parametrize(
    ("descriptor", "place"),
    [
        ({"fields": {"question": "problme"}}, "dataset.yaml"),
        ({"limt": 3}, "dataset.yaml:4:1: limt"),
        ({"limit": 0}, "dataset.yaml:4:8: limit"),
        ({"files": ["gone.jsonl"]}, "dataset.yaml:3:3: files[0]"),
        ({"prompt": "no field"}, "dataset.yaml:4:9: prompt"),
        ({"metrics": [{"name": "exact_match", "threshold": 2}]}, "dataset.yaml:6:14: metrics[0].threshold"),
    ],
)
def test_errors_of_a_descriptor_have_their_places(project, validate, descriptor, place):
    project(ROW, **descriptor)
    code, lines = validate()
    assert code == 1
    assert any(line.startswith((place, "rows.jsonl:1:1: question")) for line in lines), lines


def test_a_wrong_metric_of_the_file_hides_no_problem_of_its_rows(project, validate):
    project(ROW, {"question": 1}, metrics=[{"name": "exact_match", "threshold": 1.0, "args": {"nonsense": 1}}])
    code, lines = validate()
    assert code == 1
    assert [line.split(" ")[0] for line in lines[:-1]] == ["dataset.yaml:1:1:", "rows.jsonl:2:1:"], lines
    assert "nonsense" in lines[0]


def test_an_unknown_evaluation_profile_hides_no_problem_of_a_row(project, validate):
    project(ROW, {"question": 1})
    code, lines = validate("--evaluation-profile=judgd", ".")
    assert code == 1
    assert any("judgd" in line for line in lines), lines
    assert any(line.startswith("rows.jsonl:2:1:") for line in lines), lines


def test_names_that_only_a_plugin_knows_are_one_warning(project, validate):
    rows = [{"id": n, "question": f"q{n}", "answer": "a"} for n in range(50)]
    root = project(*rows, metrics=[{"name": "mine", "threshold": 1.0}], runner={"type": "my_runner"})
    (root / "conftest.py").write_text(ADDING)
    code, lines = validate()
    assert code == 0
    assert [line.split(" warning: ")[0] for line in lines[:-1]] == ["dataset.yaml:5:9:", "dataset.yaml:8:3:"]
    assert "the metric 'mine' is not built in; a plugin or conftest.py must register it" in lines[0]
    assert "the runner 'my_runner' is not built in" in lines[1]


def test_an_unknown_metric_of_many_rows_is_one_warning(project, validate):
    root = project(*({"question": f"q{n}", "answer": "a", "evaluator": {"func": "mine"}} for n in range(50)))
    (root / "conftest.py").write_text(ADDING)
    code, lines = validate()
    assert (code, len(lines)) == (0, 2)
    assert lines[0].startswith("rows.jsonl:1:1: warning: the metric 'mine' is not built in")


def test_a_class_is_not_imported(project, validate):
    root = project({"anything": 1}, benchmark="mine:Mine")
    (root / "mine.py").write_text("raise SystemExit('imported')\n")
    code, lines = validate()
    assert code == 0
    assert lines == [
        "dataset.yaml:4:12: warning: benchmark: mine:Mine makes the items: it is code, which only pytest and evaluate "
        "run; its rows were not checked",
        "1 file checked, 0 cases: 0 errors, 1 warning",
    ]


def test_nothing_is_downloaded(project, validate, monkeypatch):
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    root = project(files=None, source="hf:openai/gsm8k", metrics=[{"name": "mine", "threshold": 1.0}])
    (root / "conftest.py").write_text(ADDING)
    code, lines = validate()
    assert code == 0
    assert [line.split("warning: ")[1].split(";")[0] for line in lines[:-1]] == [
        "source: its rows were not checked: nothing is downloaded here",
        "source: no revision is named, so rows may change and results with them",
        "metrics[0].name: the metric 'mine' is not built in",
    ]
    assert all(line.startswith("dataset.yaml:2:9: ") for line in lines[:2])


def test_a_revision_makes_results_repeatable(project, validate):
    project(files=None, source="hf:openai/gsm8k", revision="a1b2c3")
    assert "revision" not in "".join(validate()[1])


@pytest.mark.slow
def test_a_local_source_is_read(project, validate):
    pytest.importorskip("datasets")
    root = project(ROW, {"question": "Which?", "answer": "todo"}, files=None, source="hf:./data")
    (root / "data").mkdir()
    (root / "rows.jsonl").rename(root / "data" / "train.jsonl")
    code, lines = validate("dataset.yaml")
    assert code == 0
    assert len(lines) == 2
    assert lines[0].startswith("dataset.yaml:2:9: ")
    assert "row 2" in lines[0]
    assert "warning: answer: found 'todo'" in lines[0]


def test_a_dataset_yaml_of_another_tool_is_ignored(project, validate):
    root = project(ROW)
    (root / "dataset.yaml").write_text("path: ../coco\ntrain: images\n")
    assert validate() == (0, ["1 file checked, 1 case: 0 errors, 0 warnings"])


CHOOSE = [{"name": "multiple_choice", "threshold": 1.0, "args": {"choices": "{{ choices }}"}}]
NUMBERED = [
    {"id": n, "question": f"Which is {n}?", "choices": ["1", "2", "4"], "answer": answer}
    for n, answer in enumerate([0, 1, 2, "A,C"], 1)
]
TWO_WAYS = (
    "rows.jsonl:2:1: {}answer: found '1', which is A as text and B as index; multiple_choice reads it as B; "
    "declare the right one by `answer_is: text` or `answer_is: index` in dataset.yaml (and 1 more row)"
)
UNREAD = (
    "rows.jsonl:4:1: {}answer: multiple_choice: the ground truth is 'A,C', expected a letter, the text of one option "
    "or its index from 0; each run of it would be an error"
)


@pytest.mark.parametrize(("options", "code", "mark"), [([], 0, "warning: "), (["--strict"], 1, "")])
def test_answers_that_fail_by_their_own_metrics_are_named(project, validate, options, code, mark):
    project(*NUMBERED, metrics=CHOOSE)
    ended, lines = validate(*options)
    assert ended == code
    assert lines[:2] == [TWO_WAYS.format(mark), UNREAD.format(mark)]
    assert ("2 errors, 0 warnings" if options else "0 errors, 2 warnings") in lines[2]


def test_answer_is_in_a_descriptor_ends_the_doubt(project, validate):
    project(*NUMBERED[:3], metrics=CHOOSE, answer_is="index")
    assert validate("--strict") == (0, ["1 file checked, 3 cases: 0 errors, 0 warnings"])


@pytest.mark.parametrize(("options", "code", "mark"), [([], 0, "warning: "), (["--strict"], 1, "")])
def test_list_checks_answers_too(project, capsys, tmp_path, options, code, mark):
    project(*NUMBERED, metrics=CHOOSE)
    assert main(["list", "--check", *options]) == code
    captured = capsys.readouterr()
    assert len(captured.out.splitlines()) == 4
    told = captured.err.replace(f"{tmp_path}/", "").splitlines()
    assert told == [TWO_WAYS.format(mark), UNREAD.format(mark)]


def test_strict_lists_need_a_check(project, capsys):
    project(ROW)
    assert main(["list", "--strict"]) == 1
    assert "--strict: has no effect without --check" in capsys.readouterr().err
