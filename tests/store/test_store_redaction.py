from __future__ import annotations

import itertools
import json
import os
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_agentbench.store import REDACTED, Redactor

SECRET = "hunter2-hunter2"
redactor = Redactor({"SERVICE_API_KEY": SECRET})


@pytest.mark.parametrize(
    "name", ["OPENAI_API_KEY", "db_password", "GH_TOKEN", "Client-Secret", "AWS_CREDENTIALS", "SMTP_PASS", "NPM_AUTH"]
)
def test_values_of_variables_that_look_like_keys_are_removed(name):
    assert Redactor({name: SECRET}).text(f"curl -u me:{SECRET}@host") == f"curl -u me:{REDACTED}@host"


@pytest.mark.parametrize("name", ["HOME", "LANG", "GIT_AUTHOR_NAME", "PASSENGER_COUNT"])
def test_other_variables_stay(name):
    assert Redactor({name: SECRET}).text(SECRET) == SECRET


def test_short_values_paths_and_words_of_the_records_stay(tmp_path):
    environ = {"A_KEY": "true", "GOOGLE_APPLICATION_CREDENTIALS": str(tmp_path), "AUTH_ROLE": "assistant"}
    text = f"true {tmp_path} assistant"
    assert Redactor(environ).text(text) == text


def test_the_longer_of_two_secrets_goes_whole():
    both = Redactor({"A_KEY": "abcdefgh", "B_KEY": "abcdefgh-and-more"})
    assert both.text("abcdefgh-and-more abcdefgh") == f"{REDACTED} {REDACTED}"


KEYS = [
    "sk-proj-" + "a1B2" * 10,
    "sk-ant-api03-" + "x" * 30,
    "sk_live_" + "0" * 24,
    "ghp_" + "a" * 36,
    "github_pat_" + "a" * 60,
    "glpat-" + "a" * 20,
    "hf_" + "a" * 34,
    "xoxb-" + "1" * 24,
    "AKIA" + "A" * 16,
    "AIza" + "b" * 35,
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N",
    "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n\nMIIEow" + "A" * 80 + "\n-----END RSA PRIVATE KEY-----",
    "-----BEGIN PRIVATE KEY-----\n" + "A" * 64 + "\n" + "B" * 64,
]


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("before", ["", " ", "\n", "\x1b", '"', "=", "Authorization: Bearer "])
def test_well_known_forms_are_removed_wherever_they_stand(key, before):
    for document in ({"content": before + key}, {"raw": json.dumps({"content": before + key})}, {key: 1}, [[key]]):
        found = redactor.json(json.dumps(document))
        json.loads(found)
        assert key[10:] not in json.dumps(json.loads(found))
        assert key.splitlines()[-1] not in found


@pytest.mark.parametrize(
    "text",
    [
        "task-management-improvements-for-the-next-quarter",
        "the risk-adjusted-returns-of-the-portfolio-manager",
        "eyJ is how JSON begins in base64",
        "a bearer of good news",
        "sk-short",
    ],
)
def test_ordinary_text_stays(text):
    assert redactor.text(text) is text


def test_text_about_keys_goes_on_after_the_mark():
    text = "It begins with -----BEGIN PRIVATE KEY----- and then goes on for pages."
    assert redactor.text(text) == f"It begins with {REDACTED} and then goes on for pages."


def test_a_value_is_cleaned_through_and_through():
    value = {"a": [SECRET, {"b": f"x{SECRET}y"}], SECRET: 1, "n": 1.5, "none": None}
    assert redactor.value(value) == {"a": [REDACTED, {"b": f"x{REDACTED}y"}], REDACTED: 1, "n": 1.5, "none": None}


def _counts_as_secret(text: str) -> bool:
    """No path that exists, and none of the plain words that records are made of."""
    text = text.strip()
    return len(text) >= 8 and not os.path.exists(text) and not re.fullmatch("[a-z0-9_]+", text)


awkward = st.text(st.characters(codec="utf-8"), min_size=8, max_size=30).filter(_counts_as_secret)


@given(secret=awkward, before=st.text(max_size=5), after=st.text(max_size=5))
def test_no_secret_survives_in_json_and_the_json_stays_json(secret, before, after):
    cleaned = Redactor({"MY_KEY": secret})
    for ascii_only in (True, False):
        document = json.dumps({"text": before + secret + after, "size": 12345678}, ensure_ascii=ascii_only)
        found = json.loads(cleaned.json(document))
        assert found["size"] == 12345678
        assert secret.strip() not in found["text"]


def test_no_secret_survives_in_json_inside_json():
    secret, redactor = 'se"crét-0123456789', Redactor({"MY_PASSWORD": 'se"crét-0123456789'})
    for outer, inner in itertools.product((True, False), repeat=2):
        document = json.dumps({"arguments": json.dumps({"path": secret}, ensure_ascii=inner)}, ensure_ascii=outer)
        assert json.loads(redactor.json(document)) == {"arguments": f'{{"path": "{REDACTED}"}}'}


def test_a_secret_of_digits_leaves_numbers_alone():
    assert json.loads(Redactor({"PIN_TOKEN": "12345678"}).json('{"n":12345678,"t":"12345678"}')) == {
        "n": 12345678,
        "t": REDACTED,
    }
