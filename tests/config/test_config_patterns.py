"""Paths and glob patterns of data files, in folders that nobody vouches for."""

from __future__ import annotations

import os

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from pytest_agentbench.config.data_files import match_files


@pytest.fixture
def folder(tmp_path):
    home = tmp_path / "root" / "da[t]a"
    for name in (
        "a.jsonl",
        "b.json",
        "c.csv",
        ".d.jsonl",
        "deep/e.jsonl",
        "deep/er/f.jsonl",
        ".git/g.jsonl",
        "x/h.json",
    ):
        path = home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    (home / "folder.json").mkdir()
    (tmp_path / "root" / "up.jsonl").touch()
    return home


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("a.jsonl", "a.jsonl"),
        ("c.csv", "c.csv"),
        ("deep/../a.jsonl", "a.jsonl"),
        ("folder.json", ""),
        ("gone.jsonl", ""),
        ("*", "a.jsonl b.json"),
        (".*", ".d.jsonl"),
        ("?.json*", "a.jsonl b.json"),
        ("[ab].*", "a.jsonl b.json"),
        ("*/*", "deep/e.jsonl x/h.json"),
        ("deep/*", "deep/e.jsonl"),
        ("**/*.jsonl", "a.jsonl deep/e.jsonl deep/er/f.jsonl"),
        ("**", "a.jsonl b.json deep/e.jsonl deep/er/f.jsonl x/h.json"),
        ("**/**/er/**", "deep/er/f.jsonl"),
        ("**/e.jsonl", "deep/e.jsonl"),
        (".git/*", ".git/g.jsonl"),
        ("../*.jsonl", "../up.jsonl"),
        ("*/../*.jsonl", "a.jsonl"),
    ],
)
def test_patterns_name_data_files_in_the_order_of_their_names(folder, pattern, expected):
    assert [os.path.relpath(path, folder) for path in match_files(pattern, str(folder))] == expected.split()
    if any(sign in pattern for sign in "*?["):
        absolute = os.path.join(str(folder).replace("[", "[[]"), pattern)
        assert match_files(absolute, "/") == match_files(pattern, str(folder))


def test_links_that_go_in_circles_are_not_followed(folder):
    for name in ("one", "two"):
        (folder / "deep" / name).symlink_to(folder)
    (folder / "named").symlink_to(folder / "deep")
    found = [os.path.relpath(path, folder) for path in match_files("**/*.jsonl", str(folder))]
    assert found == ["a.jsonl", "deep/e.jsonl", "deep/er/f.jsonl"]
    assert [path.name for path in match_files("/".join("*" * 40), str(folder))] == []
    assert [path.name for path in match_files("named/*", str(folder))] == ["e.jsonl"]


@pytest.mark.slow
def test_a_deep_folder_is_walked_once_however_many_wildcards_there_are(tmp_path):
    bottom = tmp_path.joinpath(*"a" * 200)
    bottom.mkdir(parents=True)
    (bottom / "x.jsonl").touch()
    assert match_files("**/a/" * 30 + "*.jsonl", str(tmp_path)) == [bottom / "x.jsonl"]


@given(st.text(st.sampled_from("*?[]!-./ab"), max_size=30))
def test_no_pattern_breaks_it(tmp_path_factory, pattern):
    folder = tmp_path_factory.getbasetemp() / "patterns"
    start = os.path.normpath(folder / "a" / pattern)
    assume(os.path.commonpath([start, folder]) == str(folder))  # others are refused: "/**" would be the whole machine
    (folder / "a" / "b").mkdir(parents=True, exist_ok=True)
    (folder / "a" / "a.json").touch()
    found = match_files(pattern, str(folder / "a"))
    assert all(path.is_file() for path in found)
    assert found == sorted(set(found))
