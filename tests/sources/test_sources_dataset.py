from __future__ import annotations

import json
import os

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.questions import is_dataset

from pytest_agentbench.config.base import Known
from pytest_agentbench.config.roots import ConfigRoot
from pytest_agentbench.errors import ConfigError
from pytest_agentbench.records.case import MetricSpec
from pytest_agentbench.sources.dataset import (
    EXACT_MATCH,
    Dataset,
    Row,
    dataset_name,
    in_case_folder,
    open_dataset,
)
from pytest_agentbench.sources.discovery import find_cases
from pytest_agentbench.sources.rows import BadRow, read_rows, row_case


@pytest.fixture
def write(tmp_path):
    def write(content: str | bytes | list, name: str = "qa.jsonl") -> Dataset:
        path = tmp_path / name
        if isinstance(content, list):
            content = "".join(json.dumps(row) + "\n" for row in content)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return Dataset(path, path.stem)

    return write


def ids(dataset: Dataset) -> list[str]:
    return [row.case_id for row in read_rows(dataset) if isinstance(row, Row)]


def bad(dataset: Dataset) -> list[str]:
    return [row.message.removeprefix(f"{dataset.path}:") for row in read_rows(dataset) if isinstance(row, BadRow)]


def cases(dataset: Dataset):
    return [row_case(dataset, row) for row in read_rows(dataset) if isinstance(row, Row)]


def test_a_row_becomes_a_case_that_asks_and_compares(write):
    dataset = write([{"id": "q1", "question": "What is\n2+2?", "answer": 4, "tags": [" b", "a", "a"], "level": "easy"}])
    (row,) = read_rows(dataset)
    case = row_case(dataset, row)
    assert (case.case_id, case.title, case.line, case.dataset) == ("qa.q1", "What is 2+2?", 1, "qa")
    assert [(message.role, message.content) for message in case.messages] == [("user", "What is\n2+2?")]
    assert (case.reference, case.metrics, case.checks) == ("4", (EXACT_MATCH,), ())
    assert case.runner.type == "llm_probe"
    assert case.tags == row.tags == ("a", "b")
    assert case.metadata == {"level": "easy", "tags": [" b", "a", "a"]}


def test_tags_are_a_text_or_texts_also_in_the_metadata(write):
    tags = ["math", ["b", 1, "a"], {"a": 1}, 7, None]
    rows = [*({"question": "q", "tags": each} for each in tags), {"question": "q", "metadata": {"tags": ["m"]}}]
    assert [row.tags for row in read_rows(write(rows))] == [("math",), ("a", "b"), (), (), (), ("m",)]


def test_default_ids_count_physical_lines_in_jsonl_and_positions_from_1_in_json(write):
    rows = [{"question": "a"}, {"question": "b"}]
    assert ids(write("\n" + json.dumps(rows[0]) + "\r\n \n" + json.dumps(rows[1]))) == ["qa.item_2", "qa.item_4"]
    assert ids(write(json.dumps(rows), "qa.json")) == ["qa.item_1", "qa.item_2"]
    assert ids(write(json.dumps({"name": "x", "items": rows, "by": "y"}, indent=2), "qa.json")) == [
        "qa.item_1",
        "qa.item_2",
    ]
    assert ids(write(json.dumps(rows[0], indent=2), "qa.json")) == ["qa.item_1"]
    assert ids(write(json.dumps(rows[0]), "qa.json")) == ["qa.item_1"]
    assert ids(write(json.dumps(rows[0]))) == ["qa.item_1"]


@pytest.mark.parametrize("bom", [b"", b"\xef\xbb\xbf"])
def test_lines_and_documents_are_distinguished_by_content_under_any_suffix(write, bom):
    lines = b'{"id": 1, "question": "a"}\n{"id": 2, "question": "b"}\n'
    document = b'[\n{"id": 1, "question": "a"},\n{"id": 2, "question": "b"}\n]'
    for content in (lines, document, document.replace(b"\n", b"")):
        for name in ("qa.jsonl", "qa.json"):
            assert ids(write(bom + content, name)) == ["qa.1", "qa.2"]


def test_items_of_a_document_know_their_own_lines(write):
    dataset = write('{"v": [1,\n2],\n "items": [{"question": "a"},\n\n {"question":\n "b"}, {"id": "c"}]}', "qa.json")
    assert [row.line for row in read_rows(dataset)] == [3, 5, 6]
    assert bad(dataset) == ["6:1: question: found none, expected a text; it is the agent's task"]


ADVICE = "question: found none, expected a text; it is the agent's task; found "


@pytest.mark.parametrize(
    ("row", "found"),
    [
        ({"problem": "1 + 1?", "solution": "2", "id": 1, "answer": "2"}, "'problem', 'solution': "),
        ({"Question": "1 + 1?", "answer": "2", "metadata": {}}, "'Question': "),
        (
            dict.fromkeys("abcdefghijkl", 1),
            "'a', 'b', 'c', 'd', 'e', 'f', 'g', 'h', 'i', 'j' and 2 more: ",
        ),
    ],
)
def test_rows_without_a_question_name_their_fields_and_what_describes_them(write, row, found):
    dataset = write([row], "my rows.jsonl")
    command = f"agentbench new dataset '{os.path.relpath(dataset.path)}'"
    assert bad(dataset) == [f"1:1: {ADVICE}{found}`{command}` writes a dataset.yaml that names the fields"]


@pytest.mark.parametrize("row", [{"id": 1}, {"answer": "2", "tags": ["a"]}, {"question": 5, "problem": "1 + 1?"}])
def test_rows_without_unknown_fields_get_no_advice(write, row):
    [problem] = bad(write([row]))
    assert problem.endswith("it is the agent's task")


@pytest.mark.parametrize(
    ("answer", "reference"),
    [
        (None, ""),
        (4, "4"),
        (True, "true"),
        (27.0, "27.0"),
        (1e-7, "1e-7"),
        (["a", "b"], "a"),
        (["a"], "a"),
        ({"all_of": ["a", 1.0]}, "a\n1.0"),
        (1e20, "1e+20"),
        ("é", "é"),
    ],
)
def test_answers_become_text(write, answer, reference):
    (case,) = cases(write([{"question": "q", "answer": answer}]))
    assert case.reference == reference


@pytest.mark.parametrize("row", [{}, {"answer": None}, {"answer": ""}])
def test_without_answer_or_evaluator_only_a_judge_can_decide(write, row):
    (case,) = cases(write([{"question": "q", **row}]))
    assert (case.metrics, case.checks) == ((), ())


def test_metadata_is_merged_and_wins(write):
    (case,) = cases(
        write([{"question": "q", "answer": "a", "x": 1, "y": [2], "metadata": {"x": 3, "config": {"os": "l"}}}])
    )
    assert case.metadata == {"x": 3, "y": [2], "config": {"os": "l"}}
    (case,) = cases(write([{"question": "q", "answer": "a", "metadata": "free text"}]))
    assert case.metadata == {"metadata": "free text"}


def test_other_metrics_replace_the_default(write):
    similar = MetricSpec(name="similarity", threshold=0.8)
    dataset = write([{"question": "q", "answer": "a"}])
    (case,) = cases(Dataset(dataset.path, dataset.name, (similar,)))
    assert case.metrics == (similar,)


def test_an_evaluator_that_names_a_check_replaces_the_comparison(write):
    evaluator = {"func": "file_contains", "args": {"path": "out.txt", "text": "done"}}
    (case,) = cases(write([{"question": "q", "answer": "", "metadata": {"evaluator": evaluator}}]))
    (check,) = case.checks
    assert (check.kind, check.declarative.path, case.metrics) == ("file_contains", "out.txt", ())


def test_an_evaluator_that_names_a_metric_may_set_threshold_and_reference(write):
    own = {"func": "similarity", "args": {"threshold": 0.5, "reference": "b", "case": False}}
    first, second = cases(
        write([{"question": "q", "answer": "a", "evaluator": e} for e in ({"func": "similarity"}, own)])
    )
    assert (first.metrics, first.reference) == ((MetricSpec(name="similarity", threshold=1.0),), "a")
    assert (second.metrics, second.reference) == (
        (MetricSpec(name="similarity", threshold=0.5, args={"case": False}),),
        "b",
    )


def test_a_plugins_check_is_known_by_its_registration(write):
    dataset = write([{"question": "q", "evaluator": {"func": "is_haiku", "args": {"lines": 3}}}])
    known = Known(checks=frozenset({"is_haiku"}), metrics=frozenset({"exact_match"}))
    (case,) = cases(Dataset(dataset.path, "qa", known=known))
    assert (case.checks[0].kind, case.checks[0].declarative.model_extra) == ("is_haiku", {"lines": 3})


@pytest.mark.parametrize(
    ("evaluator", "message"),
    [
        ("exact_match", 'found "exact_match", expected {func: a registered check or metric'),
        ({"func": ["a"]}, "expected {func"),
        ({"func": "exact_match", "expected": {}}, "expected {func"),
        ({"func": "exact_match", "args": [1]}, "args: found a list, expected an object"),
        (
            {"func": "exact_mach"},
            "func: found 'exact_mach', expected a registered check or metric; did you mean 'exact_match'",
        ),
        ({"func": "exact_match"}, "nothing to compare with"),
        ({"func": "exact_match", "args": {"reference": None}}, "nothing to compare with"),
        ({"func": "exact_match", "args": {"reference": "a", "threshold": 2}}, "args.threshold"),
        ({"func": "tool_call_count", "args": {"count": "3"}}, "args.count: Input should be a valid integer"),
        ({"func": "status_is"}, "args.status: Field required"),
        (
            {"func": "regex_match", "args": {"pattern": "("}},
            "args.pattern: found '(', which is not a regular expression: missing )",
        ),
    ],
)
def test_an_invalid_evaluator_is_a_bad_row(write, evaluator, message):
    dataset = write([{"question": "q", "evaluator": evaluator}, {"question": "next"}])
    dataset = Dataset(dataset.path, "qa", known=Known(metrics=frozenset({"exact_match"})))
    (found,) = bad(dataset)
    assert found.startswith("1:1: evaluator: ")
    assert message in found
    assert ids(dataset) == ["qa.item_2"]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"{bad", "2:2: not valid JSON: expecting property name"),
        (b'  {"question": "q",}', "2:"),
        (b'{"question": "q"} x', "2:18: not valid JSON: extra data"),
        (b"id,question,answer", "2:1: not valid JSON: expecting value"),
        (b"[1]", "2:1: found a list, expected an object with a `question`"),
        (b"null", "2:1: found null"),
        (b'{"id": 1}', "2:1: question: found none"),
        (b'{"question": 5}', "2:1: question: found a number, expected a text"),
        (b'{"question": " "}', "2:1: question: found a blank text"),
        (b'{"question": "q", "prediction": "p"}', "2:1: found an agent's answer"),
        (b'{"question": "q", "answer": "a", "messages": [], "success": true}', "2:1: found an agent's answer"),
        (b'{"question": "q", "id": []}', "2:1: id: found a list"),
        (b'{"question": "q", "id": ""}', "2:1: id: found an empty text, expected a text or a number"),
        (b'{"question": "q", "x": NaN}', "2:24: not valid JSON: NaN is no JSON value"),
        (b'{"question": "q", "x": 1e999}', "2:1: not valid JSON: the number 1e999 is out of range"),
        (b'{"question": "q", "x": ' + b"[" * 100_000, "2:1: not readable: nested too deeply"),
        (b'{"question": "a\0b"}', "2:16: not valid JSON: invalid control character"),
        (b'{"question": "caf\xe9"}', "2:18: not UTF-8: found byte 0xe9"),
        (b'{"question": "\\ud83d"}', "2:1: found half of a surrogate pair"),
        (b'{"question": "q", "x": {"y": "\\uDE00"}}', "2:1: found half of a surrogate pair"),
    ],
)
def test_a_bad_line_is_named_and_the_others_still_run(write, line, message):
    dataset = write(b'{"id": 1, "question": "a"}\n' + line + b'\n{"id": 3, "question": "\\ud83d\\ude00"}\n')
    (found,) = bad(dataset)
    assert found.startswith(message)
    assert ids(dataset) == ["qa.1", "qa.3"]


def test_a_bad_first_line_does_not_make_it_a_document(write):
    for name in ("qa.jsonl", "qa.json"):
        dataset = write('{"id": 1, "question": "a"\n{"id": 2, "question": "b"}\n', name)
        assert ids(dataset) == ["qa.2"]
        assert len(bad(dataset)) == 1


def test_a_document_is_read_up_to_its_first_error(write):
    dataset = write('[{"question": "a"},\n {"question": "b"}\n {"question": "c"}]', "qa.json")
    assert ids(dataset) == ["qa.item_1", "qa.item_2"]
    assert bad(dataset) == ["3:2: not valid JSON: expecting ',' delimiter"]
    assert bad(write('[{"question": "a"}] [', "qa.json")) == ["1:21: not valid JSON: extra data"]
    assert bad(write(b'[\n {"question": "caf\xe9"}]', "qa.json")) == [
        "2:19: not UTF-8: found byte 0xe9; save the file as UTF-8"
    ]


def test_duplicate_ids_name_both_lines(write):
    dataset = write([{"id": 1, "question": "a"}, {"id": "x", "question": "b"}, {"id": "1", "question": "c"}])
    assert bad(dataset) == ["3:1: id: found '1' again, first on line 1; give each item its own id"]
    assert ids(dataset) == ["qa.1", "qa.x"]


def test_ids_are_such_as_node_ids_can_carry_and_stay_apart(write):
    dataset = write([{"id": each, "question": "q"} for each in ("a[1]", "a_1_", "a::b", "a\nb", "\ud800", "a b/é")])
    found = ids(dataset)
    assert len(set(found)) == 6
    assert found[1] == "qa.a_1_"
    assert found[0].startswith("qa.a_1_-")
    assert found[5] == "qa.a b/é"
    assert not any(bad in each for each in found for bad in ("[", "]", "::", "\n", "\ud800"))
    assert ids(dataset) == found


@pytest.mark.parametrize("content", ["", "\n \n", "[]", '{"items": []}'])
def test_a_file_without_items_is_an_error(write, content):
    assert bad(write(content, "qa.json"))[0].startswith("1:1: ")
    assert bad(write(content))[0].startswith("1:1: ")


def test_the_first_hundred_bad_rows_are_reported(write):
    found = bad(write("id,question\n" * 250))
    assert len(found) == 101
    assert found[-1] == "250:1: 150 more items are bad"


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be"])
def test_utf_16_is_one_clear_error(write, encoding):
    dataset = write('{"question": "a"}\n'.encode(encoding))
    with pytest.raises(ConfigError, match=r"qa\.jsonl:1:1: found UTF-16 or binary data, expected UTF-8 text"):
        list(read_rows(dataset))


def test_a_file_that_cannot_be_read_is_one_clear_error(tmp_path):
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        list(read_rows(Dataset(tmp_path / "gone.jsonl", "gone")))


pieces = [
    *b"{}[],:\n1",
    b'"question"',
    b'"items"',
    b'"id"',
    b'"evaluator"',
    b'"metadata"',
    b'"a"',
    b"null",
    b"\xff",
    b"\0",
]
near_json = st.lists(
    st.sampled_from([bytes([each]) if isinstance(each, int) else each for each in pieces]), max_size=25
)


@pytest.mark.slow
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=300)
@given(st.binary(max_size=80) | near_json.map(b"".join))
def test_no_content_crashes_it(write, content):
    for name in ("qa.jsonl", "qa.json"):
        dataset = write(content, name)
        is_dataset(dataset.path)
        try:
            rows = list(read_rows(dataset))
        except ConfigError:
            continue
        assert rows
        for row in rows:
            assert isinstance(row, BadRow) or row_case(dataset, row).messages


scalars = st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
answers = st.none() | scalars | st.lists(scalars, min_size=1, max_size=3)


@pytest.mark.slow
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.tuples(st.text(min_size=1).filter(str.strip), answers), min_size=1, max_size=5),
    st.sampled_from(["lines", "list", "items", "indented"]),
    st.booleans(),
)
def test_values_written_by_json_are_read_unchanged(write, pairs, form, ascii_only):
    rows = [{"question": question, "answer": answer} for question, answer in pairs]
    texts = {
        "lines": "\n".join(json.dumps(row, ensure_ascii=ascii_only) for row in rows),
        "list": json.dumps(rows, ensure_ascii=ascii_only),
        "items": json.dumps({"a": rows, "items": rows}, ensure_ascii=ascii_only),
        "indented": json.dumps(rows, ensure_ascii=ascii_only, indent=1),
    }
    dataset = write(texts[form].encode("utf-8", "surrogatepass"), "qa.jsonl" if form == "lines" else "qa.json")
    found = cases(dataset)
    assert [case.messages[0].content for case in found] == [question for question, _ in pairs]
    # Of several right answers the first one stands for all
    firsts = [answer[0] if isinstance(answer, list) else answer for _, answer in pairs]
    assert [same_value(case.reference, first) for case, first in zip(found, firsts, strict=True)] == [True] * len(pairs)


def same_value(reference: str, answer: object) -> bool:
    """Whether a reference is a text or spells a value as JSON does."""
    if answer is None or isinstance(answer, str):
        return reference == (answer or "")
    return type(read := json.loads(reference)) is type(answer) and read == answer


@pytest.mark.parametrize(
    ("content", "name", "expected"),
    [
        ('{"question": "q"}', "a.jsonl", True),
        ('\n{bad\n[1]\n{"question": "q"}', "a.jsonl", True),
        ('{"id": 1, "prediction": "p"}\n{"question": "q"}', "a.jsonl", False),
        ('{"question": "q", "answer": "a", "prediction": "p"}', "a.jsonl", False),
        ('{"question": {"type": "string"}}', "a.jsonl", False),
        ("id,question\n1,a", "a.jsonl", False),
        ("", "a.jsonl", False),
        ('{"question": "' + "x" * 200_000 + '"}\n', "a.jsonl", True),
        ('[{"question": "q"}]', "a.json", True),
        ('[\n {\n "id": 1,\n "question": "q"}', "a.json", True),
        ('[{"id": 1, "question": "' + "x" * 200_000 + '"}]', "a.json", True),
        ('{"name": "n", "items": [{"question": "q"}]}', "a.json", True),
        ('{"question": "q"}\n{"question": "q"}', "a.json", True),
        ('{"question": "q"}', "a.json", False),
        ('[{"id": 1, "prediction": "p"}]', "a.json", False),
        ('{"q1": "4"}', "a.json", False),
        ('{"benchmark_info": {}, "evaluation_results": [{"question": "q", "score": 1}]}', "a.json", False),
        ('{"type": "object", "properties": {"question": {"type": "string"}}}', "a.json", False),
        ("[]", "a.json", False),
        ("[1, 2]", "a.json", False),
        ("not json", "a.json", False),
        ('{"question": "q"}', "a.txt", False),
    ],
)
def test_a_folder_collects_only_files_with_rows_of_questions(write, content, name, expected):
    assert is_dataset(write(content, name).path) is expected


def test_a_utf_16_dataset_is_collected_so_that_its_error_is_seen(write):
    assert is_dataset(write('{"question": "q"}\n'.encode("utf-16")).path)


def test_only_regular_files_are_looked_at(tmp_path):
    os.mkfifo(tmp_path / "pipe.jsonl")
    (tmp_path / "folder.jsonl").mkdir()
    assert not is_dataset(tmp_path / "pipe.jsonl")
    assert not is_dataset(tmp_path / "folder.jsonl")
    os.mkfifo(tmp_path / "dataset.yaml")  # who opened it would wait for ever
    with pytest.raises(ConfigError, match=r"dataset\.yaml:1:1: found a pipe, expected a file"):
        open_dataset(tmp_path / "dataset.yaml", ConfigRoot(tmp_path))
    (tmp_path / "one.jsonl").write_text('{"question": "q"}')
    assert not is_dataset(tmp_path / "one.jsonl")  # what such a descriptor uses is not known
    assert list(find_cases(tmp_path)) == [tmp_path / "dataset.yaml"]


def test_an_unreadable_folder_is_reported_after_all_others(tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "one.jsonl").write_text('{"question": "q"}')
    (tmp_path / "a").chmod(0)
    found = []
    try:
        os.listdir(tmp_path / "a")
        pytest.skip("this user reads everything")
    except PermissionError:
        with pytest.raises(ConfigError, match=r"a: cannot be read: Permission denied"):
            found.extend(find_cases(tmp_path))
        assert found == [tmp_path / "b" / "one.jsonl"]
    finally:
        (tmp_path / "a").chmod(0o700)


def test_a_case_folder_reaches_below_itself(tmp_path):
    (tmp_path / "case" / "files").mkdir(parents=True)
    (tmp_path / "case" / "test.yaml").touch()
    assert in_case_folder(tmp_path / "case" / "files", tmp_path)
    assert in_case_folder(tmp_path / "case", tmp_path)
    assert not in_case_folder(tmp_path, tmp_path)


@pytest.mark.parametrize(
    ("marks", "name"),
    [
        ([], "one"),
        (["pytest.ini"], "p/data/one"),
        (["p/.git"], "data/one"),
        (["p/.git", "p/data/setup.cfg"], "one"),
        (["models.yaml"], "one"),
        (["models.yaml", "p/pyproject.toml"], "data/one"),
        (["p/models.yaml", "p/data/pyproject.toml"], "one"),
        (["models.yaml", "p/.git"], "data/one"),
    ],
)
def test_datasets_are_named_by_their_path_below_root_or_project(tmp_path, marks, name):
    data = tmp_path / "p" / "data"
    data.mkdir(parents=True)
    for mark in marks:  # no session with this root sees the models.yaml above it
        (tmp_path / mark).write_text("schema_version: 1\n" if mark.endswith(".yaml") else "")
    for file in ("one.jsonl", "one.json"):
        assert dataset_name(data / file, ConfigRoot(data)) == name


def test_datasets_below_a_config_root_are_named_by_their_path(tmp_path):
    (tmp_path / "models.yaml").write_text("schema_version: 1\n")
    (tmp_path / "data" / "suites").mkdir(parents=True)
    (tmp_path / "data" / "suites" / "any.yaml").write_text("schema_version: 1\n")
    root = ConfigRoot(tmp_path)
    assert dataset_name(tmp_path / "data" / "one.jsonl", root) == "data/one"
    assert dataset_name(tmp_path.parent / "one.jsonl", root) == "one"
    assert dataset_name(tmp_path.with_suffix(".jsonl"), root) == tmp_path.name
