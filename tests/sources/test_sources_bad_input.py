"""Files as people have them by mistake: each is told in one short message a line, and what is good still loads."""

from __future__ import annotations

import json
import tracemalloc
import zlib
from pathlib import Path

import pytest
from support.questions import is_dataset

from pytest_agentbench.config.roots import ConfigRoot
from pytest_agentbench.errors import ConfigError
from pytest_agentbench.sources.dataset import Dataset, Row, open_dataset
from pytest_agentbench.sources.rows import BadRow, read_benchmark_items, read_rows, row_case

FIRST, LAST = b'{"id": "first", "question": "a", "answer": "1"}\n', b'{"id": "last", "question": "b", "answer": "2"}\n'


@pytest.fixture
def load(tmp_path):
    """The ids and messages that a file's bytes give."""

    def read(content: bytes, name: str = "qa.jsonl") -> tuple[list[str], list[str]]:
        dataset = write(tmp_path / name, content)
        found = list(read_rows(dataset))
        for row in found:
            assert isinstance(row, BadRow) or row_case(dataset, row).messages
        good = [row.case_id.removeprefix("qa.") for row in found if isinstance(row, Row)]
        return good, [row.message.removeprefix(f"{tmp_path / name}:") for row in found if isinstance(row, BadRow)]

    return read


def write(path: Path, content: bytes) -> Dataset:
    path.write_bytes(content)
    return Dataset(path, "qa")


def test_a_csv_file_that_is_named_jsonl(tmp_path, load):
    good, bad = load(b"id,question,answer\nq1,What?,4\nq2,Why?,5\n")
    assert good == []
    assert bad == [f"{line}:1: not valid JSON: expecting value" for line in (1, 2, 3)]
    assert not is_dataset(tmp_path / "qa.jsonl")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b'{"question": "a\0b"}', "2:16: not valid JSON: invalid control character"),
        (b'{"question": "q"}\0', "2:18: not valid JSON: extra data"),
        (b"\0\0\0\0\0", "2:1: not valid JSON: expecting value"),
        (b'{"question": "q", "x": NaN}', "2:24: not valid JSON: NaN is no JSON value"),
        (b'{"question": "q", "x": [1, -Infinity]}', "2:28: not valid JSON: -Infinity is no JSON value"),
        (b'{"question": "q", "x": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", "2:1: not readable: nested too deeply"),
        (b'{"question": "q", "x": ' + b"9" * 10_000 + b", bad}", "2:10026: not valid JSON: expecting property name"),
        (b'{"question": "q", "x": ' + b"9" * 10_000 + b"} x", "2:10026: not valid JSON: extra data"),
        (b'{"question": "\xff\xfe"}', "2:15: not UTF-8: found byte 0xff"),
    ],
)
@pytest.mark.parametrize("newline", [b"\n", b"\r\n"])
def test_a_bad_line_among_good_ones(load, line, message, newline):
    good, bad = load((FIRST + line + b"\n" + LAST).replace(b"\n", newline))
    assert good == ["first", "last"]
    (found,) = bad
    assert found.startswith(message)
    assert len(found) < 200


def test_a_nul_in_a_text_by_escape_is_text(tmp_path):
    dataset = write(tmp_path / "qa.jsonl", b'{"id": "a\\u0000b", "question": "x\\u0000y"}\n')
    (row,) = read_rows(dataset)
    assert row_case(dataset, row).messages[0].content == "x\0y"
    assert "\0" not in row.case_id


@pytest.mark.parametrize(
    "content",
    [
        FIRST.decode().encode("utf-16"),
        FIRST.decode().encode("utf-16-le"),
        FIRST.decode().encode("utf-16-be"),
        b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + zlib.compress(b"pixels") * 50,
        b"PK\x03\x04\x14\0\0\0\x08\0" + zlib.compress(b"zip") * 50,
        b"\0" * 5000,
    ],
)
def test_a_file_of_another_kind_is_one_error(tmp_path, content):
    for name in ("qa.jsonl", "qa.json"):
        with pytest.raises(ConfigError, match=r"^\S+:1:1: found UTF-16 or binary data, expected UTF-8 text"):
            list(read_rows(write(tmp_path / name, content)))


def test_nothing_in_a_message_steers_the_terminal(tmp_path):
    evil = "\x1b]0;owned\x07\u202e"
    path = tmp_path / "evil\x1b[31m.jsonl"
    path.write_text(json.dumps({"question": "q", "evaluator": {"func": "x", evil: 1}}) + "\n")
    (row,) = read_rows(open_dataset(path, ConfigRoot(tmp_path)))
    assert row.message.isprintable()
    assert "evil\\x1b[31m.jsonl:1:1: evaluator: " in row.message
    descriptor = tmp_path / "dataset.yaml"
    descriptor.write_text(
        json.dumps({"schema_version": 1, "files": [path.name], evil: 1, "prompt": "{{" + evil + "}}"})
    )
    with pytest.raises(ConfigError) as caught:
        open_dataset(descriptor, ConfigRoot(tmp_path))
    assert all(line.isprintable() for line in str(caught.value).splitlines())


def test_a_bom_and_windows_line_endings_change_nothing(load):
    assert load((b"\xef\xbb\xbf" + FIRST + b"\n" + LAST).replace(b"\n", b"\r\n")) == (["first", "last"], [])
    document = b'[{"question": "a"},\r\n{"question": "b"}]\r\n'
    assert load(b"\xef\xbb\xbf" + document, "qa.json") == (["item_1", "item_2"], [])


@pytest.mark.parametrize("name", ["qa.jsonl", "qa.json"])
def test_integers_longer_than_python_reads_are_their_digits(tmp_path, name):
    digits = "9" * 10_000
    text = f'{{"id": "long", "question": "q", "answer": -{digits}, "n": {digits}}}'
    lines = [FIRST.decode().strip(), text, LAST.decode().strip()]
    content = "\n".join(lines) if name == "qa.jsonl" else f"[{','.join(lines)}]"
    dataset = write(tmp_path / name, content.encode())
    rows = list(read_rows(dataset))
    assert [row.case_id for row in rows] == ["qa.first", "qa.long", "qa.last"]
    case = row_case(dataset, rows[1])
    assert (case.reference, case.metadata["n"]) == (f"-{digits}", digits)
    assert [item.answer for item in read_benchmark_items(dataset)] == ["1", f"-{digits}", "2"]


def test_huge_ids_are_cut_and_stay_apart(load):
    rows = [{"id": "x" * 1_000_000 + end, "question": "q"} for end in ("a", "b")]
    good, bad = load("\n".join(map(json.dumps, [*rows, rows[0]])).encode())
    assert len(set(good)) == 2
    assert all(len(each) < 250 for each in good)
    assert len(bad[0]) < 300
    assert bad[0].startswith("3:1: id: found 'xxx")


@pytest.mark.slow
@pytest.mark.parametrize("valid", [True, False])
def test_a_line_of_50_megabytes(tmp_path, valid):
    size = 50 * 2**20
    end = b'"}\n' if valid else b"\n"
    path = tmp_path / "qa.jsonl"
    dataset = write(path, b'{"id": "huge", "question": "' + b"x" * size + end + LAST)
    tracemalloc.start()
    try:
        rows = list(read_rows(dataset))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert [row.case_id for row in rows if isinstance(row, Row)] == (["qa.huge", "qa.last"] if valid else ["qa.last"])
    if not valid:
        assert rows[0].message == f"{path}:1:28: not valid JSON: unterminated string"
    assert peak < 6 * size
    assert is_dataset(path)
