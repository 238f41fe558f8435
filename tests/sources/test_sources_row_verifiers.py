"""The descriptor's `verify`: hidden files that hold fields of a row."""

from __future__ import annotations

import json

import pytest
import yaml

from pytest_agentbench.config.roots import ConfigRoot
from pytest_agentbench.errors import ConfigError
from pytest_agentbench.sources.dataset import Row, open_dataset
from pytest_agentbench.sources.rows import read_rows, row_case

VERIFY = {"answer_file": "solution.py", "pytest": {"tests": ["test_it.py"]}}


@pytest.fixture
def describe(tmp_path):
    """Return the dataset of rows with `verify`."""

    def write(rows, verify, **more):
        (tmp_path / "pytest.ini").touch()
        (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        text = {"schema_version": 1, "files": ["rows.jsonl"], "verify": verify, **more}
        (tmp_path / "dataset.yaml").write_text(yaml.safe_dump(text))
        return open_dataset(tmp_path / "dataset.yaml", ConfigRoot(tmp_path))

    return write


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("from s import {{ name }}\n", "from s import f\n"),
        ("{{ test }}", "assert f(1)\nassert f(2)\n"),
        ("def t():\n    {{ tests }}\n", "def t():\n    assert 1\n    assert 2\n"),
        ("x = {{ tests }}\n", "x = assert 1\nassert 2\n"),
        ("{{ numbers }} {{ nothing }}.", "[1, 2] ."),
        ("{{ answer }}", "f"),
        ("plain", "plain"),
        ("", ""),
    ],
)
def test_texts_hold_fields_of_the_row(describe, template, text):
    row = {
        "question": "q",
        "answer": "f",
        "name": "f",
        "test": "assert f(1)\nassert f(2)\n",
        "tests": ["assert 1", "assert 2"],
        "numbers": [1, 2],
        "nothing": None,
    }
    dataset = describe([row], {**VERIFY, "texts": {"test_it.py": template}})
    ((verifier,),) = [row_case(dataset, row).verify for row in read_rows(dataset)]
    assert [(hidden.target, hidden.source, hidden.text) for hidden in verifier.files] == [("test_it.py", None, text)]
    assert (verifier.check_id, verifier.answer_file) == ("verify", "solution.py")


def test_files_stand_next_to_texts(describe, tmp_path):
    (tmp_path / "helper.py").write_text("")
    verify = {**VERIFY, "files": {"helper.py": "helper.py"}, "texts": {"test_it.py": "1"}}
    dataset = describe([{"question": "q"}], verify)
    ((verifier,),) = [row_case(dataset, row).verify for row in read_rows(dataset)]
    assert [(hidden.target, hidden.source) for hidden in verifier.files] == [
        ("helper.py", tmp_path / "helper.py"),
        ("test_it.py", None),
    ]


def test_a_row_without_a_field_of_a_text_is_an_error_of_that_row(describe):
    rows = [{"question": "q", "test": "1"}, {"question": "r", "tset": "1"}]
    dataset = describe(rows, {**VERIFY, "texts": {"test_it.py": "{{ test }}"}})
    good, bad = read_rows(dataset)
    assert isinstance(good, Row)
    assert "rows.jsonl:2:1: verify.texts.test_it.py: found no field 'test'; did you mean 'tset'?" in bad.message


@pytest.mark.parametrize(
    ("verify", "place"),
    [
        ({**VERIFY, "texts": {"test_it.py": "{{ a + b }}"}}, "verify.texts.test_it.py: found {{ a + b }}"),
        ({**VERIFY, "texts": {"../test_it.py": "1"}}, "verify.texts"),
        ({**VERIFY, "answer_file": "../x.py"}, "verify.answer_file"),
        ({"answer_file": "x.py"}, "verify: found neither of 'command' and 'pytest'"),
    ],
)
def test_mistakes_are_named_with_their_place(describe, verify, place):
    with pytest.raises(ConfigError) as caught:
        describe([{"question": "q"}], verify)
    assert place in str(caught.value)


def test_metrics_decide_beside_the_verifier_only_if_they_are_named(describe):
    row = {"question": "q", "answer": "a"}
    assert describe([row], VERIFY).metrics == ()
    named = describe([row], VERIFY, metrics=[{"name": "f1_score", "threshold": 0.5}])
    assert [metric.name for metric in named.metrics] == ["f1_score"]
