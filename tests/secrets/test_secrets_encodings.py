"""Texts with their escapes undone, and the places of decoded characters in the original text."""

from __future__ import annotations

import json
from base64 import b64encode

import pytest

from pytest_agentbench.secrets.encodings import (
    encode_hex,
    find_long_runs,
    list_base64_forms,
    list_plain_forms,
    split_secret,
    unescape_layers,
)

KEY = "k3y" * 8


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("%41%42c", "ABc"),
        ("%c3%a9!", "é!"),
        ("\\u0041\\x42c", "ABc"),
        ("\\\\u0041", "A"),
        ("\\ud83d\\ude00", "😀"),
        ("&amp;&#65;&#x42;", "&AB"),
        ("a\\/b", "a/b"),
        ("100% of it & more", None),
    ],
)
def test_escapes_are_decoded(text, meant):
    found = [layer.text for layer in unescape_layers(text)]
    assert found[0] == text
    assert (found[1:2] or [None])[0] == meant


def test_escapes_within_escapes_are_undone_three_times():
    text = "A"
    for _ in range(5):
        text = text.replace("%", "%25") if "%" in text else "%41"
    assert text == "%2525252541"
    assert [layer.text for layer in unescape_layers(text)] == ["%2525252541", "%25252541", "%252541", "%2541"]


def test_the_origin_of_escaped_text_is_found():
    text = f"id=%22{KEY}%22;%41"
    plain, opened = list(unescape_layers(text))[:2]
    assert opened.text == f'id="{KEY}";A'
    at = opened.text.index(KEY)
    assert opened.origin((at, at + len(KEY))) == (6, 6 + len(KEY))
    assert opened.origin((at - 1, at + len(KEY) + 1)) == (3, len(text) - 4)  # with its quotes, whole escapes
    assert opened.origin((0, 2)) == (0, 2)
    assert opened.origin((len(opened.text) - 1, len(opened.text))) == (len(text) - 3, len(text))
    assert plain.origin((3, 7)) == (3, 7)


def test_lines_that_were_wrapped_are_one():
    digits = b64encode(bytes(range(90))).decode()
    text = f"{digits[:60]}\n{digits[60:]} end"
    found = list(unescape_layers(text))
    assert [layer.is_unwrapped for layer in found] == [False, True]
    assert found[1].text == f"{digits} end"
    assert found[1].origin((0, len(digits))) == (0, len(digits) + 1)
    short = "\n".join([digits[:30], digits[30:60]])
    assert [layer.text for layer in unescape_layers(short)] == [short]


@pytest.mark.parametrize(
    ("text", "runs"),
    [
        ("", []),
        ("short words only", []),
        ("a" * 16, [(0, 16)]),
        ("a" * 15, []),
        (f"x {'b' * 16}, {'c' * 20}", [(2, 18), (20, 40)]),
        ("ä" * 40, []),
    ],
)
def test_runs_are_sixteen_characters_or_more(text, runs):
    assert find_long_runs(text) == runs


def test_a_secret_in_base64_is_known_wherever_it_begins():
    secret = "hunter2-hunter2"
    for before in range(6):
        for after in range(3):
            whole = b64encode(b"x" * before + secret.encode() + b"y" * after).decode()
            assert any(form in whole for form in list_base64_forms(secret)), (before, after)
    assert len(list_base64_forms(secret)) == 3
    assert min(map(len, list_base64_forms(secret))) >= 18
    assert encode_hex("Zé") == "5ac3a9"


def test_forms_of_a_secret():
    secret = 'pass "word" é'
    forms = list_plain_forms(secret)
    for form in (secret, 'pass+"word"+é', json.dumps(secret)[1:-1], json.dumps(json.dumps(secret)[1:-1])[1:-1]):
        assert form in forms
    assert "A-long-secret" in list_plain_forms("%41-long-secret")


def test_long_random_parts_of_a_secret_stand_alone():
    first, second = "a1" * 8, "B2" * 10
    assert split_secret(f"{first}\n{second}\nand words") == {first, second}
    assert split_secret(f"{first}\\n{second[:15]}") == {first}
    assert split_secret(first) == set()
    assert split_secret(f"https://{first}.example {'x' * 40}") == {"x" * 40}
