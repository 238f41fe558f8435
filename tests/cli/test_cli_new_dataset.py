from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pytest_agentbench.cli import main
from pytest_agentbench.cli.dataset_guesses import guess_dataset
from pytest_agentbench.cli.dataset_text import descriptor_text
from pytest_agentbench.config.dataset_file import DatasetDescriptor

SHARED = Path(__file__).parents[3] / "shared" / "data" / "datasets"


@pytest.fixture
def init(tmp_path, monkeypatch, capsys):
    """Write rows to a file and describe it. Return the exit status, the output and the descriptor."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pyproject.toml").touch()

    def call(rows, *argv, name="rows.jsonl", written="dataset.yaml"):
        if not isinstance(rows, str):
            rows = json.dumps(rows) if name.endswith(".json") else "".join(json.dumps(row) + "\n" for row in rows)
        (tmp_path / name).write_text(rows, encoding="utf-8")
        code = main(["new", "dataset", name, *argv])
        path = tmp_path / written
        descriptor = yaml.safe_load(path.read_text(encoding="utf-8")) if path.exists() else None
        captured = capsys.readouterr()
        return code, captured.out + captured.err, descriptor

    return call


def many(**row):
    """Eight rows; a list of values is taken in turns, a text with {n} numbered."""

    def value(given, n):
        if isinstance(given, tuple):
            return given[n % len(given)]
        return given.format(n=n) if isinstance(given, str) else given

    return [{key: value(given, n) for key, given in row.items()} for n in range(8)]


def validated(capsys, path="."):
    code = main(["validate", str(path)])
    return code, capsys.readouterr().out


def test_usual_names_are_found(init, capsys):
    rows = many(unique_id="x{n}", problem="Problem {n}?", solution="It is so.", answer="A{n}", level=(1, 2))
    code, printed, descriptor = init(rows)
    assert code == 0
    assert descriptor == {
        "schema_version": 1,
        "files": ["rows.jsonl"],
        "fields": {"question": "problem", "answer": "answer", "id": "unique_id"},
        "metrics": [{"name": "exact_match", "threshold": 1.0}],
        "tags_from": ["level"],
    }
    assert printed == (
        "dataset.yaml written, from 8 rows:\n"
        "  question   problem\n"
        "  answer     answer\n"
        "  id         unique_id\n"
        "  tags from  level\n"
        "  metric     exact_match >= 1\n"
        "  unused     solution, such as: It is so.\n"
        "read it, then:\n"
        "  agentbench validate dataset.yaml\n"
        "  pytest dataset.yaml --model <id>\n"
    )
    assert validated(capsys) == (0, "1 file checked, 8 cases: 0 errors, 0 warnings\n")


@pytest.mark.parametrize(
    ("rows", "fields"),
    [
        (many(question="q{n}", answer="a"), ("question", "answer")),
        (many(data={"question": "q"}, gold=True), ("data.question", "gold")),
        (many(Question="q{n}", GroundTruth="a"), ("Question", "GroundTruth")),
        (many(题目="q{n}", 答案="a"), ("题目", "答案")),
        (many(question={"stem": "q"}, answerKey="A"), ("question.stem", "answerKey")),
        (many(question="q{n}", answers={"text": ["a"], "answer_start": [1]}), ("question", "answers.text.0")),
        (many(question="q{n}", answers=["a", "b"]), ("question", {"any_of": "answers"})),
        (many(question="q{n}", answers=["a"]), ("question", "answers.0")),
        (many(question="q{n}", answers=[{"text": "a"}, {"text": "b"}]), ("question", {"any_of": "answers.*.text"})),
        (many(question="q{n}", answer={"value": "a", "aliases": ["a"]}), ("question", {"any_of": "answer.aliases"})),
        (many(question="q{n}", answer={"value": "a", "aliases": ["b"]}), ("question", "answer.value")),
        (many(text="t{n}", label=("pos", "neg")), ("text", "label")),
        (many(prompt="t{n}", expected=3), ("prompt", "expected")),
        (many(instruction="do {n}", input="this", output="that"), ("instruction", "output")),
        (
            many(stem="What is it? {n}", answers={"text": ["a longer text than the question"]}),
            ("stem", "answers.text.0"),
        ),
        (many(title="T", body="the longest of all {n}", target="a"), ("body", "target")),
    ],
)
def test_question_and_answer_are_found(init, capsys, rows, fields):
    code, _, descriptor = init(rows)
    assert code == 0
    assert (descriptor["fields"]["question"], descriptor["fields"]["answer"]) == fields
    assert validated(capsys)[0] == 0


def test_an_uncertain_guess_is_marked(init, tmp_path):
    rows = [*many(id="same", body="the longest of all {n}", answers=["a"]), {"id": "x", "body": "no answer"}]
    _, printed, descriptor = init(rows)
    assert "question   body (not sure: no field has a usual name; this one has the longest texts)" in printed
    assert "answer     answers.0 (not sure: 1 of 9 rows have none)" in printed
    assert "id         id (not sure: its values repeat or are missing" in printed
    assert descriptor["fields"]["id"] == "id"
    assert "# not sure of question: no field has a usual name" in (tmp_path / "dataset.yaml").read_text()


@pytest.mark.parametrize(
    ("answers", "answer_is", "reason"),
    [
        ((0, 1), "index", "in all 8 rows the answer is a number from 0"),
        ((1, 2), "index1", "2 is no index from 0 into 2 choices, and in all 8 rows the answer counts"),
    ],
)
def test_the_numbering_of_choices_is_written_with_its_reason(init, tmp_path, answers, answer_is, reason):
    _, printed, descriptor = init(many(question="q{n}", choices=["x", "y"], answer=answers))
    assert descriptor["answer_is"] == answer_is
    assert f"# {reason}" in (tmp_path / "dataset.yaml").read_text()
    assert f"answer is  {answer_is}: {reason}" in printed
    assert "not sure" not in printed


def test_rows_behind_the_first_200_decide_the_numbering_too(init):
    rows = [{"question": f"q{n}", "choices": ["1", "2", "3"], "answer": n % 2 + 1} for n in range(250)]
    _, printed, descriptor = init([*rows, {"question": "last", "choices": ["1", "2", "3"], "answer": 3}])
    assert descriptor["answer_is"] == "text"
    assert "3 is no index from 0 into 3 choices" in printed


def test_a_missing_answer_is_reported(init, capsys):
    code, printed, descriptor = init(many(question="q{n}", url="http://x/{n}"))
    assert (code, "metrics" in descriptor) == (0, False)
    assert "answer     not found: name it in fields.answer, or let a judge decide" in printed
    code, told = validated(capsys)
    assert code == 1
    assert "there is nothing to score against" in told
    assert "name an evaluation profile with a judge" in told


@pytest.mark.parametrize(
    ("answers", "metric"),
    [
        (("4", "1,234", "-2.5", "$7", "12%", "1/2", "3e8"), {"name": "numeric_match", "threshold": 1.0}),
        ((4, 5.5), {"name": "numeric_match", "threshold": 1.0}),
        (("so 2 + 2\n#### 4", "then\n#### 1,234"), {"name": "numeric_match", "threshold": 1.0}),
        (("\\frac{1}{2}", "$x^2$"), {"name": "math_equal", "threshold": 1.0}),
        (("a word " * 20,), {"name": "f1_score", "threshold": 0.5}),
        (("Paris", "4 apples"), {"name": "exact_match", "threshold": 1.0}),
        ((True, False), {"name": "exact_match", "threshold": 1.0}),
    ],
)
def test_answers_choose_the_metric(init, answers, metric):
    assert init(many(question="q{n}", answer=answers))[2]["metrics"] == [metric]


@pytest.mark.parametrize(
    ("row", "prompt", "field"),
    [
        ({"choices": ["x", "y"], "answer": 1}, "{{ choices }}", "choices"),
        ({"options": ["x", "y"], "answer": "x"}, "{{ options }}", "options"),
        (
            {"choices": {"text": ["x", "y"], "label": ["A", "B"]}, "answerKey": "A"},
            "{{ choices.text }}",
            "choices.text",
        ),
        ({"options": {"A": "x", "B": "y"}, "answer": "A"}, "A. {{ options.A }}\nB. {{ options.B }}", "options"),
    ],
)
def test_choices_are_shown_and_reach_the_metric(init, capsys, row, prompt, field):
    _, printed, descriptor = init(many(question="q{n}", **row))
    assert descriptor["prompt"] == f"{{{{ question }}}}\n\n{prompt}\n\nAnswer with the letter only."
    lettered = prompt.startswith("A. ")  # letters need no list of choices
    args = {} if lettered else {"args": {"choices": f"{{{{ {field} }}}}"}}
    assert descriptor["metrics"] == [{"name": "multiple_choice", "threshold": 1.0, **args}]
    assert f"choices    {field}" in printed
    assert validated(capsys)[0] == 0


@pytest.mark.parametrize(
    ("row", "prompt"),
    [
        ({"context": "In {n} ...", "question": "q{n}"}, "{{ context }}\n\n{{ question }}"),
        ({"instruction": "Sum {n}", "input": ("", "text")}, "{{ question }}\n\n{{ input }}"),
        ({"question": "q{n}", "context": ("a", None)}, None),
        ({"question": "q{n}"}, None),
    ],
)
def test_the_context_of_a_question_is_in_the_prompt(init, capsys, row, prompt):
    descriptor = init(many(answer="a", **row))[2]
    assert descriptor.get("prompt") == prompt
    assert validated(capsys)[0] == 0


def test_splits_are_found_by_their_values(init, capsys):
    rows = many(question="q{n}", answer="a", split=("train", "test"), subset=("easy", "hard"), keywords=["k", "l"])
    _, _, descriptor = init(rows)
    assert descriptor["fields"] | {"split": "split", "tags": "keywords"} == descriptor["fields"]
    assert (descriptor["split"], descriptor["tags_from"]) == ("test", ["subset"])
    text = Path("dataset.yaml").read_text()
    assert "# seen: test, train" in text
    assert "few_shot: {split: train, count: 5}" in text
    assert validated(capsys)[1] == "1 file checked, 4 cases: 0 errors, 0 warnings\n"


def test_one_split_is_not_selected(init):
    _, _, descriptor = init(many(question="q{n}", answer="a", split="train"))
    assert "split" not in descriptor
    assert "Only the split train was seen" in Path("dataset.yaml").read_text()


def test_a_json_list_and_items_are_read(init):
    rows = many(task="q{n}", target="a")
    assert init(rows, name="a.json")[2]["files"] == ["a.json"]
    code, _, descriptor = init({"items": rows}, name="b.json", written="b.dataset.yaml")
    assert (code, descriptor["files"]) == (0, ["b.json"])


def test_nothing_is_overwritten(init, tmp_path):
    rows = many(question="q{n}", answer="a")
    assert init(rows, name="a.jsonl")[0] == 0
    first = (tmp_path / "dataset.yaml").read_bytes()
    code, printed, _ = init(rows, name="a.jsonl")
    assert code == 1
    assert f"{tmp_path}/a.jsonl: {tmp_path}/dataset.yaml describes it already" in printed
    code, _, descriptor = init(rows, name="b.jsonl", written="b.dataset.yaml")
    assert (code, descriptor["files"]) == (0, ["b.jsonl"])
    code, printed, _ = init(rows, "--output", "dataset.yaml", name="c.jsonl")
    assert code == 1
    assert "exists already and is not overwritten; remove it, or name another with --output" in printed
    assert (tmp_path / "dataset.yaml").read_bytes() == first


def test_the_output_may_lie_elsewhere(init, tmp_path, capsys):
    (tmp_path / "cases").mkdir()
    code, printed, descriptor = init(
        many(question="q{n}", answer="a"), "--output", "cases/mine.dataset.yaml", written="cases/mine.dataset.yaml"
    )
    assert (code, descriptor["files"]) == (0, ["../rows.jsonl"])
    assert "pytest cases/mine.dataset.yaml" in printed


@pytest.mark.parametrize(
    ("text", "name", "argv", "expected"),
    [
        ("", "a.jsonl", (), "a.jsonl:1:1: found no row, expected rows that are objects with a question"),
        ("[1, 2]", "a.json", (), "a.json:1:1: found no object, expected rows that are objects"),
        ("{bad\n", "a.jsonl", (), "a.jsonl:1:2: not valid JSON"),
        ('{"a": 1, "b": [2]}\n', "a.jsonl", (), "a.jsonl:1:1: found no field with texts that could be questions"),
        (
            '{"data": [{"question": "q"}, {"question": "r"}]}',
            "a.json",
            (),
            "a.json:1:1: found one object with rows below 'da",
        ),
        ("a,b\n", "a.csv", (), "a.csv: expected a .jsonl or .json file; a dataset.yaml reads CSV"),
        ('{"question": "q"}\n', "a.jsonl", ("--output", "mine.yaml"), "mine.yaml: expected the name dataset.yaml or"),
        ('{"question": "q"}\n', "a.jsonl", ("--output", "x/dataset.yaml"), "there is no folder"),
    ],
)
def test_rows_without_a_question_are_a_clear_error(init, text, name, argv, expected):
    code, printed, descriptor = init(text, *argv, name=name)
    assert (code, descriptor) == (1, None)
    assert expected in printed


def test_bad_rows_do_not_hide_the_good_ones(init):
    code, _, descriptor = init('{bad\n{"problem": "q", "gold": "a"}\n[1]\n')
    assert (code, descriptor["fields"]) == (0, {"question": "problem", "answer": "gold"})


def test_a_file_that_is_not_there_is_a_clear_error(init, capsys):
    assert main(["new", "dataset", "gone.jsonl"]) == 1
    assert "gone.jsonl: there is no such file or folder" in capsys.readouterr().err


keys = st.sampled_from(["question", "answer", "choices", "split", "id", "tags", "level", "data"]) | st.text(max_size=8)
values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-5, 5)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=12),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3),
    max_leaves=8,
)


@pytest.mark.slow
@settings(suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.dictionaries(keys, values, max_size=6), min_size=1, max_size=6), st.text(min_size=1, max_size=10))
def test_any_keys_make_a_valid_descriptor(rows, file):
    rows = [row | {"problem\n: {}": f"q{at}"} for at, row in enumerate(rows)]
    guess = guess_dataset(rows)
    assert guess is not None
    data = yaml.safe_load(descriptor_text(guess, file, len(rows)))
    assert data["files"] == [file]
    assert data["fields"] == {name: found.place for name, found in guess.parts.items()}
    DatasetDescriptor.model_validate(data | {"files": None, "source": "hf:x/y"})


def test_a_prompt_never_shows_an_object_with_the_answer():
    rows = [{"problem": f"Is {n} even?", "question": {"answer": n % 2 == 0}} for n in range(4)]
    guess = guess_dataset(rows)
    assert {name: found.field for name, found in guess.parts.items()} == {
        "question": "problem",
        "answer": "question.answer",
    }
    data = yaml.safe_load(descriptor_text(guess, "rows.jsonl", len(rows)))
    assert "prompt" not in data
    DatasetDescriptor.model_validate(data | {"files": None, "source": "hf:x/y"})


def test_a_key_cannot_break_out_of_a_comment(init, tmp_path):
    rows = [{"problem": "q", "answer": "a", "split": split} for split in ("train", "test")] * 3
    evil = "x\nrunner: {type: evil}\u2028y: 1\x85z: 1"
    code, printed, descriptor = init([row | {evil: "longer than the others", "level": "a"} for row in rows])
    assert code == 0
    assert "runner" not in descriptor
    assert not {"y", "z"} & set(descriptor)
    _, printed, descriptor = init([{evil: f"q{n}"} for n in range(4)], name="b.jsonl", written="b.dataset.yaml")
    assert descriptor["fields"] == {"question": evil}
    assert "runner: {type: evil}" not in printed.splitlines()


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        *("tbench_demo", "mmlongbench_demo", "rag_benchmark", "web_benchmark", "math_demo", "webagent_demo"),
        *("python_interpreter_demo", "loader_edge"),
    ],
)
def test_real_datasets_collect_at_once(init, tmp_path, name):
    source = SHARED / f"{name}.jsonl"
    if not source.is_file():
        pytest.skip("the shared data is not here")
    code, _, descriptor = init(source.read_text(encoding="utf-8"), name=source.name)
    assert code == 0
    assert descriptor["fields"].get("answer") == {"tbench_demo": "expected", "webagent_demo": None}.get(name, "answer")
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    environ = {key: value for key, value in os.environ.items() if not key.startswith(("PYTEST_", "COV_"))}
    command = [sys.executable, "-m", "pytest", "-q", "--collect-only", "dataset.yaml", "--model", "demo"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environ)
    items = [line for line in done.stdout.splitlines() if "[demo]" in line]
    good = {"loader_edge": 4, "tbench_demo": 4, "mmlongbench_demo": 3, "rag_benchmark": 10, "web_benchmark": 5}
    counts = good | {"math_demo": 1, "webagent_demo": 2, "python_interpreter_demo": 2}
    assert len(items) == counts[name], done.stdout
    assert done.returncode == (0 if name != "loader_edge" else done.returncode), done.stdout
