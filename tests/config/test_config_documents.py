from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from pytest_agentbench.config.documents import parse_json, parse_yaml, read_document
from pytest_agentbench.errors import ConfigError

PATH = Path("case.yaml")


def data(text: str):
    document = parse_yaml(text.encode(), PATH)
    assert not document.problems
    return document.data


def complaint(text: str | bytes) -> str:
    raw = text.encode() if isinstance(text, str) else text
    try:
        document = parse_yaml(raw, PATH)
    except ConfigError as error:
        return str(error)
    return str(document.error(document.problems))


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@pytest.mark.slow
@given(values)
def test_output_of_pyyaml_is_read_back(value):
    text = yaml.safe_dump(value, allow_unicode=True)
    assert data(text) == yaml.safe_load(text)


@given(st.binary(max_size=200))
def test_no_bytes_raise_anything_but_a_config_error(raw):
    assert complaint(raw) == "" or complaint(raw).startswith("case.yaml:")


@given(st.text(alphabet="{}[]:-&*!|>'\"#%@?, \n\tab1<~", max_size=60))
def test_no_yaml_like_text_raises_anything_but_a_config_error(text):
    assert complaint(text) == "" or complaint(text).startswith("case.yaml:")


def test_keys_are_texts_and_dates_stay_texts():
    assert data("10: a\ntrue: b\nnull: c\n2026-01-31: d\nwhen: 2026-01-31\n=: e") == {
        "10": "a",
        "true": "b",
        "null": "c",
        "2026-01-31": "d",
        "when": "2026-01-31",
        "=": "e",
    }


def test_merge_keys_give_way_to_own_and_earlier_ones():
    text = "a: &a {x: 1, y: 1}\nb: &b {x: 2, z: 2}\nc: {<<: [*a, *b], y: 3}\nd: {<<: *b}"
    assert data(text)["c"] == {"x": 1, "y": 3, "z": 2}
    assert data(text)["d"] == {"x": 2, "z": 2}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a: 1\nb:\n  c: 2\n  c: 3\n", "case.yaml:4:3: duplicate key 'c'"),
        ("1: a\n'1': b\n", "case.yaml:2:1: duplicate key '1'"),
        ("a: !!python/object/apply:os.system [ls]\n", "case.yaml:1:4: the tag !!python/object/apply:os.system is not"),
        ("a: !!python/name:os.system x\n", "case.yaml:1:4: the tag !!python/name:os.system is not"),
        ("a: !custom {b: 1}\n", "case.yaml:1:4: the tag !custom is not allowed"),
        ("a: .nan\n", "case.yaml:1:4: found '.nan', expected a finite float"),
        ("a: -.inf\n", "case.yaml:1:4: found '-.inf', expected a finite float"),
        ("? [a, b]\n: c\n", "case.yaml:1:3: found a collection as a key"),
        ("a: [1, 2\n", "case.yaml:1:4: not valid YAML: '[' begins here and is not closed"),
        ("a: *nowhere\n", "case.yaml:1:4: not valid YAML: found '*nowhere', which refers to a missing anchor"),
        ("a: 1\n---\nb: 2\n", "case.yaml:2:1: not valid YAML: found a second document"),
        (b"a: 1\nb: \xff\n", "case.yaml:2:4: not valid YAML: invalid leading UTF-8 octet; save the file as UTF-8"),
        ("a: &a [*a]\n", "aliases expand to too many values"),
        ("a: {<<: 5}\n", "case.yaml:1:9: found something else after '<<'"),
    ],
)
def test_unsafe_yaml_is_refused(text, expected):
    assert expected in complaint(text)


def test_all_problems_of_a_text_are_found_in_its_order():
    assert [line.split(": ")[0] for line in complaint("a: .nan\nb: {c: 1, c: 2}\nd: !x y\n").splitlines()] == [
        "case.yaml:1:4",
        "case.yaml:2:11",
        "case.yaml:3:4",
    ]


def test_an_alias_bomb_is_refused_quickly():
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 12)]
    assert "aliases expand to too many values" in complaint("\n".join(lines))


def test_ordinary_aliases_are_no_bomb():
    shared = "base: &base {role: user, content: hello}\n"
    assert len(data(shared + "all: [" + ", ".join(["*base"] * 1000) + "]")["all"]) == 1000


@pytest.mark.parametrize("text", ["[" * 100_000, "- " * 100_000, "{a: " * 100_000, "? " * 100_000])
def test_deep_nesting_is_an_error_and_no_crash(text):
    assert "found more than 100 levels of nesting" in complaint(text)


@pytest.mark.parametrize("levels", [99, 100, 101, 900])
def test_a_problem_in_deep_json_has_a_place(levels):
    document = parse_json(('{"a": ' + "[" * levels + "]" * levels + "}").encode(), PATH)
    assert "a: found a list" in str(document.error([document.problem(("a",), "found a list")]))


def test_a_byte_order_mark_is_no_key():
    assert parse_yaml("\ufeffa: 1".encode(), PATH).data == {"a": 1}


def test_a_file_over_the_limit_is_refused(tmp_path):
    path = tmp_path / "big.yaml"
    path.write_bytes(b"a: " + b"x" * (4 * 1024 * 1024))
    with pytest.raises(ConfigError, match=r"big\.yaml:1:1: found 4,194,307 bytes, expected at most"):
        read_document(path)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(ConfigError, match=r"gone\.yaml:1:1: cannot be read: No such file"):
        read_document(tmp_path / "gone.yaml")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"a": 1,\n "a": 2}', "duplicate key 'a'"),
        ('{"a": NaN}', "found NaN, expected a finite number"),
        ('{"a": \n}', "case.yaml:2:1: not valid JSON: Expecting value"),
        ("[" * 100_000, "case.yaml:1:1: not valid JSON"),
        (b"\xff", "case.yaml:1:1: not valid JSON"),
    ],
)
def test_json_that_is_refused(text, expected):
    with pytest.raises(ConfigError) as error:
        parse_json(text if isinstance(text, bytes) else text.encode(), PATH)
    assert expected in str(error.value)


def test_json_takes_surrogate_pairs_that_yaml_does_not():
    assert parse_json(b'["\\ud83d\\ude00"]', PATH).data == ["\U0001f600"]
