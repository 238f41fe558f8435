from __future__ import annotations

from typing import get_args

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_agentbench.errors import ConfigError
from pytest_agentbench.models.cassette_file import (
    MAX_MESSAGES,
    Answer,
    Cassette,
    Exchange,
    Refusal,
    dump_cassette,
    read_cassette,
)
from pytest_agentbench.options import CASSETTE_MODES
from pytest_agentbench.records.case import CassetteMode
from pytest_agentbench.records.run import Usage

texts = st.text(st.characters(exclude_categories=("Cs",)))
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)
messages = st.lists(st.dictionaries(texts, values, min_size=1, max_size=3), max_size=4)
requests = st.builds(
    lambda rest, said: {"model": "m", **rest, "messages": said}, st.dictionaries(texts, values), messages
)
answers = st.builds(
    Answer,
    content=st.none() | texts,
    message=st.none() | st.dictionaries(texts, values, min_size=1),
    finish_reason=st.none() | texts,
    usage=st.builds(Usage, input_tokens=st.none() | st.integers(0), cost_usd=st.none() | st.floats(0, 1e6)),
    attempts=st.integers(1, 9),
)
ends = st.one_of(
    st.builds(lambda reply: {"reply": reply}, answers),
    st.builds(lambda code, text: {"refused": Refusal(code=code, message=text)}, texts.filter(bool), texts),
    st.sampled_from([{"cut_off": "run"}, {"cut_off": "agent"}]),
)
exchanges = st.builds(
    lambda asked, request, seconds, end: Exchange(asked=asked, request=request, seconds=seconds, **end),
    texts.filter(bool),
    requests,
    st.floats(0, 1e6),
    ends,
)


def written(tmp_path, text):
    path = tmp_path / "c.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def chat(*said, **fields):
    return {"model": "m", "messages": [{"role": "user", "content": text} for text in said], **fields}


def exchange(request, **fields):
    return Exchange(asked="m", request=request, **{"reply": Answer(content="x"), **fields})


@pytest.mark.slow
@settings(max_examples=25)
@given(st.lists(exchanges, max_size=4), texts.filter(bool), st.none() | st.floats(0, 1e9))
def test_a_written_cassette_is_read_unchanged(tmp_path_factory, found, name, seconds):
    cassette = Cassette(name, name, 2, name, seconds, tuple(found))
    path = written(tmp_path_factory.mktemp("c"), dump_cassette(cassette))
    assert read_cassette(path) == cassette


@settings(max_examples=40)
@given(st.lists(st.integers(1, 3), max_size=6), st.data())
def test_requests_that_go_on_are_written_once(tmp_path_factory, steps, data):
    """Of conversations in any order, each the beginning of others or not."""
    said = [tuple(data.draw(st.lists(st.sampled_from("ab"), min_size=1, max_size=n))) for n in steps]
    cassette = Cassette("c", "m", 1, None, None, tuple(exchange(chat(*each)) for each in said))
    path = written(tmp_path_factory.mktemp("c"), dump_cassette(cassette))
    assert read_cassette(path) == cassette


def test_a_conversation_grows_by_its_new_messages_only(tmp_path):
    grown = [chat(*("word " * 50 for _ in range(turns))) for turns in range(1, 41)]
    text = dump_cassette(Cassette("c", "m", 1, exchanges=tuple(map(exchange, grown))))
    assert len(text) < 60 * len("word " * 50)
    other = dump_cassette(Cassette("c", "m", 1, exchanges=(exchange(chat("a")), exchange(chat("a", "b", tools=[])))))
    assert b"continues" not in other  # another request in more than its messages


def test_texts_are_readable(tmp_path):
    text = dump_cassette(Cassette("c", "m", 1, exchanges=(exchange(chat("Zwei\nZeilen\n\nfür ☃")),))).decode()
    assert "      content: |-\n        Zwei\n        Zeilen\n\n        für ☃\n" in text


def test_one_may_be_written_by_hand(tmp_path):
    path = written(
        tmp_path,
        """
        schema_version: 1
        case: c
        model: m
        exchanges:
          - {asked: m, request: {model: m, messages: []}, reply: {content: Hello}}
        complete: true
        """,
    )
    [found] = read_cassette(path).exchanges
    assert found.reply.content == "Hello"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            {"continues": 2, "request": {}},
            "exchanges[0].continues: found 2, expected the number of an earlier exchange",
        ),
        (
            {"continues": 1, "request": {}},
            "exchanges[0].continues: found 1, expected the number of an earlier exchange",
        ),
        ({"continues": 1}, "needs either 'request', or 'continues'"),
        ({"request": {}}, "needs either 'request', or 'continues'"),
        ({"reply": None}, "needs one of 'reply', 'refused' and 'cut_off'"),
        ({"cut_off": "run"}, "needs one of 'reply', 'refused' and 'cut_off'"),
        ({"asked": ""}, "exchanges[0].asked: found ''"),
        ({"seconds": -1}, "exchanges[0].seconds: found -1"),
    ],
)
def test_errors_in_a_cassette_contain_their_place(tmp_path, change, said):
    document = yaml.safe_load(dump_cassette(Cassette("c", "m", 1, exchanges=(exchange(chat("a")),))))
    document["exchanges"][0] |= change
    path = written(tmp_path, yaml.safe_dump(document))
    with pytest.raises(ConfigError) as raised:
        read_cassette(path)
    assert said in str(raised.value)
    assert str(raised.value).startswith(f"{path}:")
    assert "restore the cassette, or delete it and record again" in str(raised.value)


def test_only_a_list_of_messages_goes_on(tmp_path):
    exchanges = [{"asked": "m", "request": {"messages": 5}, "reply": {}}, {"asked": "m", "continues": 1, "reply": {}}]
    document = {"schema_version": 1, "case": "c", "model": "m", "exchanges": exchanges, "complete": True}
    path = written(tmp_path, yaml.safe_dump(document))
    with pytest.raises(ConfigError, match=r"c\.yaml:\d+:\d+: exchanges\[1\]\.continues: found 1, expected"):
        read_cassette(path)


@pytest.mark.slow
def test_a_small_file_cannot_grow_without_bound(tmp_path):
    many = "\n".join(f"- {{asked: m, continues: {n}, messages: [{{}}], reply: {{}}}}" for n in range(1, 5000))
    head = "schema_version: 1\ncase: c\nmodel: m\nexchanges:\n- {asked: m, request: {messages: [{}]}, reply: {}}\n"
    path = written(tmp_path, f"{head}{many}\ncomplete: true\n")
    with pytest.raises(ConfigError, match=rf"c\.yaml:\d+:.*more than {MAX_MESSAGES:,} messages"):
        read_cassette(path)


def test_the_modes_of_the_option_are_those_of_the_records():
    assert get_args(CassetteMode) == CASSETTE_MODES
