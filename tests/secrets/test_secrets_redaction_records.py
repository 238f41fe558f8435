"""`Redactor.dump` redacts all texts that others wrote into a record, and skips the record's own fields."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ConfigDict, PlainSerializer, computed_field
from pydantic_core import PydanticSerializationError

from pytest_agentbench.extensions import extension_names, find_extension
from pytest_agentbench.records.base import HexId, Record, SandboxKind
from pytest_agentbench.records.evaluation import (
    AnswerVerdict,
    CheckResult,
    Evaluation,
    JudgeIteration,
    JudgeResult,
    JudgeVerdict,
    MetricResult,
)
from pytest_agentbench.records.run import RunArtifact, RunnerEvent
from pytest_agentbench.secrets.redaction import REDACTED, Redactor
from pytest_agentbench.store.judgements import StoredVerdict
from pytest_agentbench.testing.samples import sample_run

SECRET = "hunter2-hunter2"
redactor = Redactor({"SERVICE_API_KEY": SECRET})

PARTS: dict[str, type[Record]] = {
    name: find_extension("evaluation_part", name) for name in sorted(extension_names("evaluation_part"))
}
KINDS = (
    *(RunArtifact, Evaluation, JudgeResult, JudgeIteration, JudgeVerdict, AnswerVerdict, CheckResult, MetricResult),
    *(StoredVerdict, *PARTS.values()),
)
ID = "0123456789abcdef" * 4
TIME = datetime(2026, 1, 2, 3, 4, 5, 678901, UTC)


def fill(annotation: Any, text: Callable[[], str]) -> list[Any]:
    """Return a value of each kind that the annotation admits, every string in it from `text`."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if annotation == HexId:
        return [ID]
    if annotation == SandboxKind:
        return ["docker"]
    if origin is Annotated:
        return fill(arguments[0], text)
    if origin is Literal:
        return [arguments[0]]
    if origin in (Union, UnionType):
        return [value for each in arguments if each is not NoneType for value in fill(each, text)]
    if origin is tuple:
        return [tuple(v for each in arguments if each is not ... for v in fill(each, text))]
    if origin is list:
        return [fill(arguments[0], text)]
    if origin is dict:
        keys = fill(arguments[0], text)
        return [dict(zip(keys, fill(arguments[1], text), strict=True))]
    if isinstance(annotation, type) and issubclass(annotation, Record):
        return [make(annotation, text)] if annotation is not Record else [AnswerVerdict(correct=True, reason=text())]
    plain: dict[Any, Callable[[], Any]] = {
        str: text,
        Any: lambda: {text(): [text(), {"deeper": text()}], "size": 1.5},
        bool: lambda: True,
        datetime: lambda: TIME,
    }
    return [plain.get(annotation, lambda: 1)()]


def make(kind: type[Record], text: Callable[[], str]) -> Record:
    """Return a record all of whose fields hold something. A field that admits several kinds has the last."""
    given = {}
    for name, field in kind.model_fields.items():
        if name == "parts":
            continue
        annotation = Annotated[field.annotation, *field.metadata] if field.metadata else field.annotation
        given[name] = fill(annotation, text)[-1]
    return kind.model_validate(given)


def texts_in(written: Any) -> Iterator[str]:
    if isinstance(written, str):
        yield written
    elif isinstance(written, dict):
        for key, item in written.items():
            yield key
            yield from texts_in(item)
    elif isinstance(written, list):
        for item in written:
            yield from texts_in(item)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_a_secret_in_any_text_of_others_goes_from_any_record_and_all_else_stays(kind):
    numbers: list[int] = []

    def number() -> str:
        numbers.append(len(numbers))
        return f"text {numbers[-1]}"

    clean = make(kind, number)
    assert redactor.dump(clean) == clean.model_dump_json()
    texts = [each.removeprefix("text ") for each in texts_in(json.loads(clean.model_dump_json())) if "text " in each]
    assert bool(texts) == ('"type": "string"' in json.dumps(kind.model_json_schema()))
    for at in map(int, texts):
        texts = iter(f"it is {SECRET}." if each == at else f"text {each}" for each in numbers)
        record = make(kind, lambda texts=texts: next(texts))
        assert SECRET in record.model_dump_json()
        expected = clean.model_dump_json().replace(f'"text {at}"', f'"it is {REDACTED}."')
        assert redactor.dump(record) == expected


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_fixed_fields_of_a_record_are_not_redacted(kind):
    known = Redactor({"A_KEY": ID, "B_KEY": "2026-01-02T03:04:05", "C_KEY": "678901Z", "D_KEY": SECRET})
    for text in ("a word", SECRET):
        shown = make(kind, lambda text=text: text.replace(SECRET, REDACTED))
        assert known.dump(make(kind, lambda text=text: text)) == shown.model_dump_json()


def test_an_id_of_another_form_may_be_somebody_elses():
    for id_ in (f"canary {SECRET}", SECRET, ID + SECRET):
        document = redactor.dump(sample_run(run_id=id_, fingerprint=ID))
        assert SECRET not in document
        assert json.loads(document)["fingerprint"] == ID
    known = Redactor({"A_KEY": ID[:40]})
    assert ID[:40] not in known.dump(sample_run(run_id=ID[:40]))


def test_an_id_goes_from_where_others_wrote_it():
    document = json.loads(Redactor({"A_KEY": ID}).dump(sample_run(f"the key is {ID}", run_id=ID, metadata={ID: [ID]})))
    assert document["run_id"] == ID
    assert document["trace"][0]["content"] == f"the key is {REDACTED}"
    assert document["metadata"] == {REDACTED: [REDACTED]}


def test_a_secret_in_a_part_of_an_evaluation_goes():
    parts = {name: make(kind, lambda: f"it is {SECRET}") for name, kind in PARTS.items()}
    evaluation = Evaluation(case_id="a", outcome="passed", fingerprint=ID, parts=parts)
    document = redactor.dump(evaluation)
    assert SECRET not in document
    assert json.loads(document)["fingerprint"] == ID
    assert parts
    for name, part in parts.items():
        assert json.loads(document)[name].keys() == json.loads(part.model_dump_json()).keys()


def test_text_of_custom_serialisers_is_redacted():
    class Louder(Record):
        name: str
        shout: Annotated[str, PlainSerializer(lambda text: f"{text}-{text}")] = "hunter2"

        @computed_field
        @property
        def spelt(self) -> dict[str, str]:
            return {SECRET: self.name.removeprefix("no ")}

    spelt = {REDACTED: "who"}
    assert json.loads(redactor.dump(Louder(name="no who"))) == {"name": "no who", "shout": REDACTED, "spelt": spelt}
    document = redactor.dump(Louder(name=f"no {SECRET}"))
    assert json.loads(document) == {"name": f"no {REDACTED}", "shout": REDACTED, "spelt": {REDACTED: REDACTED}}

    class Open(Record):
        model_config = ConfigDict(extra="allow")

    assert json.loads(redactor.dump(Open(**{SECRET: 1, "other": SECRET}))) == {REDACTED: 1, "other": REDACTED}

    @dataclass
    class Own:
        text: str

    for value in (Own(SECRET), SECRET.encode(), {SECRET}, {1: SECRET, "1": "hidden behind it"}, {1: {2: SECRET}}):
        run = sample_run(metadata={"value": value})
        assert SECRET in run.model_dump_json()
        assert SECRET not in redactor.dump(run)
        json.loads(redactor.dump(run))


def nest(value: Any, times: int) -> Any:
    for _ in range(times):
        value = [{"in": value}]
    return value


UNWRITABLE = {
    "an unknown type": object(),
    "no Unicode": "\udcff",
    "no UTF-8": b"\xff",
    "too deep": nest(SECRET, 150),
    "much too deep": nest(SECRET, 450),
}


@pytest.mark.parametrize("value", UNWRITABLE.values(), ids=UNWRITABLE)
def test_values_that_json_cannot_represent_are_refused(value):
    for before in ("", SECRET):
        run = sample_run(metadata={"before": before, "value": value})
        for write in (run.model_dump_json, lambda run=run: redactor.dump(run)):
            with pytest.raises(PydanticSerializationError):
                write()


def test_a_secret_key_of_aws_behind_its_name_goes():
    key = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"
    run = sample_run(metadata={"said": {"aws_secret_access_key": key, "digest": key}})
    assert json.loads(redactor.dump(run))["metadata"] == {"said": {"aws_secret_access_key": REDACTED, "digest": key}}


def test_a_secret_deep_in_a_record_goes():
    run = sample_run(metadata={"value": nest(SECRET, 120)})
    assert json.loads(redactor.dump(run))["metadata"] == {"value": nest(REDACTED, 120)}


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(codec="utf-8")) | st.datetimes(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.tuples(inner, inner)
        | st.dictionaries(st.text(st.characters(codec="utf-8"), max_size=5), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(value=json_values, seconds=st.floats(), hidden=st.booleans())
def test_a_record_reads_the_same_whichever_way_it_is_written(value, seconds, hidden):
    metadata = {"value": value, "secret": SECRET if hidden else REDACTED, "infinite": math.inf}
    run = sample_run(duration_seconds=seconds, metadata=metadata)
    shown = sample_run(duration_seconds=seconds, metadata={**metadata, "secret": REDACTED})
    assert redactor.dump(run) == shown.model_dump_json()


awkward = st.text('a1é "\\/n\n:=@%&', max_size=4)
pieces = st.sampled_from(
    [
        *(
            SECRET,
            SECRET[:8],
            SECRET[8:],
            SECRET.encode().hex(),
            "sk-proj-" + "a1B2" * 10,
            "ghp_" + "a" * 36,
            "Bearer ",
        ),
        *(
            "://me:",
            "tr0ub4dor",
            "@host",
            "-----BEGIN PRIVATE KEY-----",
            "-----END PRIVATE KEY-----",
            "aws_key=",
            "\\u00",
        ),
        *("aB3/" * 10, "xoxb-1-", "1234567890:", "%68unter2-hunter2", "&#104;unter2-hunter2", "\\x1b"),
    ]
)
texts = st.lists(awkward | pieces, max_size=4).map("".join)


@given(st.lists(texts, min_size=1, max_size=5), st.dictionaries(texts, texts, max_size=2))
def test_texts_side_by_side_hide_nothing_of_each_other(several, keyed):
    data = {"several": several, "keyed": keyed}
    run = sample_run(trace=(RunnerEvent(sequence=0, at=0.0, name=several[0], data=data),))
    [event] = json.loads(redactor.dump(run))["trace"]
    assert event["name"] == redactor.text(several[0])
    assert event["data"] == redactor.value(data)
