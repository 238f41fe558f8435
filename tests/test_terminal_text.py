"""Text of others in a terminal and a CI's log."""

from __future__ import annotations

import io
import json
import re
import sys
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.ci_logs import FORGED, heeded
from support.github_runner import commands

from pytest_agentbench.terminal_text import (
    DefusingStream,
    defuse_ci_commands,
    last_lines,
    visible,
    visible_line,
    wholly_visible,
)

pieces = st.lists(
    st.sampled_from([*FORGED, "\n", "\r\n", " ", "#", ":", "-", "+", "\t", "x"]) | st.text(max_size=3)
).map("".join)


@pytest.mark.parametrize("buildkite", [False, True])
def test_no_ci_takes_visible_text_for_commands(buildkite, monkeypatch):
    monkeypatch.delenv("BUILDKITE", raising=False)
    if buildkite:
        monkeypatch.setenv("BUILDKITE", "true")
    log = "\n".join(FORGED)
    assert len(heeded(log, buildkite=buildkite)) >= 4
    assert heeded(visible(log), buildkite=buildkite) == []
    assert heeded(visible_line(log), buildkite=buildkite) == []
    assert commands(visible(log)) == []
    assert visible(log).count("forged") == log.count("forged")


@given(pieces)
def test_no_combination_of_texts_becomes_a_command(text):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BUILDKITE", "true")
        assert heeded(visible(text), buildkite=True) == []
    assert heeded(defuse_ci_commands(visible(text))) == []
    assert commands(visible(text)) == []


def test_text_that_is_no_command_stays(monkeypatch):
    monkeypatch.delenv("BUILDKITE", raising=False)
    text = "a::b\n  key: value\n## [x](y)\n::1 is an address\n--- a/file\n+++ b/file\n---\n# x\n\tsections: 1"
    assert visible(text) is text or visible(text) == text
    for words in ("می\u200cخواهم", "👩\u200d🚀 ❤\ufe0f", "naïve Å 日本語 العربية"):
        assert visible(words) == words


def test_a_document_on_a_streams_way_stays_the_same_document():
    document = {"a": "##vso[x]y", "b": ["##teamcity[z]", "::error::x"]}
    file = io.StringIO()
    print(json.dumps(document, indent=2), file=DefusingStream(file))
    assert heeded(file.getvalue()) == []
    assert json.loads(file.getvalue()) == document


def test_every_character_that_nobody_sees_is_escaped():
    """Categories of the running Python's Unicode, and the rest of the property Default_Ignorable_Code_Point."""
    unseen = {
        chr(code)
        for code in range(sys.maxunicode + 1)
        if unicodedata.category(chr(code)) in ("Cc", "Cf", "Cs", "Zl", "Zp")
    }
    unseen |= {chr(code) for first, last in _IGNORABLE for code in range(first, last + 1)} | {"\u2800"}
    for character in unseen - {"\n", "\t"}:
        assert wholly_visible(f"a{character}b") == f"a{character.encode('unicode_escape').decode()}b"
    seen = "".join(
        chr(code)
        for code in range(0x20, 0x30000)
        if chr(code) not in unseen and unicodedata.category(chr(code)) != "Cn"
    )
    assert wholly_visible(seen) == seen


_IGNORABLE = [
    *((0xAD, 0xAD), (0x34F, 0x34F), (0x61C, 0x61C), (0x115F, 0x1160), (0x17B4, 0x17B5), (0x180B, 0x180F)),
    *((0x200B, 0x200F), (0x202A, 0x202E), (0x2060, 0x206F), (0x3164, 0x3164), (0xFE00, 0xFE0F), (0xFEFF, 0xFEFF)),
    *((0xFFA0, 0xFFA0), (0xFFF0, 0xFFF8), (0x1BCA0, 0x1BCA3), (0x1D173, 0x1D17A), (0xE0000, 0xE0FFF)),
]


def test_a_line_is_one_line():
    assert visible_line("a\nb\r\n\x1b[1mc\td\u2028") == r"a\nb\r\n\x1b[1mc   d\u2028"
    assert not re.search(r"[^ -~]", visible_line("".join(map(chr, range(160)))))


@given(st.integers(0, 60), st.sampled_from([" ", '"', "='", "\n", "(", "{"]))
def test_no_part_of_a_secret_is_left_in_the_last_lines(after, before):
    secret = "sk-0123456789abcdefABCDEF"
    end = last_lines(f"the key is{before}{secret} {'x ' * after}", characters=40)
    assert len(end) <= 40
    assert secret in end or not any(secret[start:] in end for start in range(len(secret) - 3))


def test_the_last_lines_of_an_output():
    output = "".join(f"line {number}\n\n" for number in range(30))
    assert last_lines(output).splitlines() == [f"line {number}" for number in range(18, 30)]
    assert last_lines(output, 2) == "line 28\nline 29"
    assert last_lines(" \n") == ""
    assert last_lines("one two three", characters=9) == "two three"
    assert last_lines("one two three", characters=13) == "one two three"
    assert last_lines("one two three", characters=8) == "three"
