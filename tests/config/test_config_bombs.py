"""Small files that ask for much: each is refused, or read, within a time in proportion to its size."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.cpu_seconds import at_most

from pytest_agentbench.config.base import Scope, validate
from pytest_agentbench.config.documents import parse_json, parse_yaml
from pytest_agentbench.config.profiles import ModelsFile
from pytest_agentbench.errors import ConfigError

PATH = Path("case.yaml")
_LAUGHS = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 12)
)
_MERGES = "m0: &m0 {x0: 1}\n" + "".join(
    f"m{n}: &m{n} {{<<: [{', '.join([f'*m{n - 1}'] * 9)}], x{n}: 1}}\n" for n in range(1, 9)
)


def complaints(text: str) -> str:
    """Return the problems of a text, which must be found quickly."""
    with at_most(10):
        try:
            found = "\n".join(problem.message for problem in parse_yaml(text.encode(), PATH).problems)
        except ConfigError as error:
            found = str(error)
    return found


@pytest.mark.parametrize(
    "text",
    [_LAUGHS, _MERGES, "a: &a [*a]", "a: &a {b: *a}"],
    ids=["laughs", "merges", "a list in itself", "a mapping in itself"],
)
def test_aliases_that_expand_without_end(text):
    assert "aliases expand to too many values" in complaints(text)


@pytest.mark.parametrize(
    "text", ["1" + ":59" * 100_000, "9" * 1_000_000, "0x" + "f" * 1_000_000, "1." + "9" * 1_000_000]
)
def test_numbers_without_end(text):
    assert "expected a finite" in complaints(f"a: {text}")


@pytest.mark.parametrize("opening", ["[", "{a: ", "- ", "? "])
def test_nesting_without_end(opening):
    assert "levels of nesting" in complaints(opening * 500_000)


def test_json_nested_without_end():
    with pytest.raises(ConfigError, match="not valid JSON"):
        parse_json(b"[" * 1_000_000, PATH)


def test_documents_without_end():
    assert "found a second document" in complaints("a: 1\n---\n" * 200_000)


@pytest.mark.slow
@pytest.mark.parametrize("suffix", ["yaml", "json"])
def test_thousands_of_unknown_fields_are_reported_in_seconds(tmp_path, suffix):
    """The schema that suggestions are taken from is made once, the file is composed once, and keys are looked up."""
    fields = {"schema_version": 1, **{f"k{number}": 1 for number in range(1_000)}}
    document = parse_json(json.dumps(fields).encode(), tmp_path / "a.json")
    if suffix == "yaml":
        document = parse_yaml(json.dumps(fields).encode(), tmp_path / "a.yaml")
    with at_most(5):
        with pytest.raises(ConfigError) as error:
            validate(document, ModelsFile, Scope(str(tmp_path)))
        assert str(error.value).count("unknown field") == 1_000
