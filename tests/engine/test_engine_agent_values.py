"""The plain values of agents in an identity, without secrets and paths of the machine."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_agentbench.engine.agent_values import Values, is_secret
from pytest_agentbench.identity.fingerprints import canonical_json


@pytest.mark.parametrize("name", ["api_key", "API_KEY", "apiKey", "password", "auth_token", "token", "client-secret"])
def test_names_of_secrets(name):
    assert is_secret(name)


@pytest.mark.parametrize("name", ["max_tokens", "tokenizer", "stop_token", "sort_key", "key", "keyword", "author"])
def test_names_that_only_look_like_secrets(name):
    assert not is_secret(name)


def test_the_text_of_a_secret_is_left_out_and_its_number_is_not():
    values = {"token": "abc", "password": 7, "auth": ("me", "abc"), "in": {"secret": "abc"}}
    assert Values(Path("/nowhere")).named(values) == {
        "token": "(a secret)",
        "password": 7,
        "auth": "(a secret)",
        "in": {"secret": "(a secret)"},
    }


def test_the_root_directory_is_left_out_and_its_neighbour_is_not():
    values = Values(Path("/home/me/p"))
    assert values.plain("/home/me/p/x and /home/me/p") == "<rootdir>/x and <rootdir>"
    assert values.plain("/home/me/p2/x") == "/home/me/p2/x"
    assert values.plain(Path("/home/me/p/x")) == "<rootdir>/x"


def test_temporary_folders_are_left_out_and_named_ones_are_not(tmp_path):
    values, temporary = Values(Path("/nowhere")), tempfile.gettempdir()
    assert values.plain([tmp_path / "x", f"{temporary}/tmpab12_x9q/x"]) == [
        f"<temporary>/{tmp_path.name}/x",
        "<temporary>/x",
    ]
    assert values.plain(f"{temporary}/tmpab12_x9q_v2") == f"{temporary}/tmpab12_x9q_v2"
    assert values.plain(f"{temporary}/model") == f"{temporary}/model"


def test_a_password_in_a_url_is_left_out():
    assert Values(Path("/nowhere")).plain("postgres://me:abc@host/db") == "postgres://(a secret)@host/db"


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.from_regex(r"\A[a-j]{1,3}\Z"), inner, max_size=4),
)


@pytest.mark.slow
@given(PLAIN, PLAIN)
def test_values_differ_if_their_json_differs(one, other):
    texts = [canonical_json(Values(Path("/nowhere")).plain(value)) for value in (one, other)]
    assert (texts[0] == texts[1]) == (canonical_json(one) == canonical_json(other))


@pytest.mark.slow
@given(st.dictionaries(st.text(max_size=5), st.frozensets(st.integers() | st.text(max_size=5))), st.randoms())
def test_the_order_of_keys_and_sets_does_not_count(value, random):
    keys = list(value)
    random.shuffle(keys)
    shuffled = {key: frozenset(random.sample(sorted(value[key], key=repr), len(value[key]))) for key in keys}
    texts = [canonical_json(Values(Path("/nowhere")).plain(each)) for each in (value, shuffled)]
    assert texts[0] == texts[1]
