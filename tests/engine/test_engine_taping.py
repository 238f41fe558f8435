"""What becomes of a cassette as a run ends: written, or left as it was."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from pytest_agentbench.engine.cassettes import kept, run_ended, run_kept
from pytest_agentbench.errors import UnwritableError
from pytest_agentbench.models.cassette_file import Answer, Cassette, read_cassette
from pytest_agentbench.models.tape import Form, Tape
from pytest_agentbench.records.case import Case, RunnerSpec
from pytest_agentbench.records.check_specs import Check
from pytest_agentbench.secrets.redaction import Redactor

FORM = Form(
    write=lambda text: Answer(content=text),
    read=lambda answer, seconds: answer.content,
    refusal=lambda error: None,
    refused=lambda refusal: ValueError(refusal.message),
)
EXPECTS_OUTAGE = Check.model_validate(
    {"check_id": "s", "declarative": {"kind": "status_is", "status": "provider_error"}}
)


def case(*checks: Check) -> Case:
    return Case(case_id="c", title="c", path=Path("c"), runner=RunnerSpec(type="llm_probe"), checks=checks)


def tape(path: Path, session: str, mode: str = "record") -> Tape:
    return Tape(path, Cassette("c", "m", 1, session), lambda asked: mode, Redactor({}))


def ask(asked: Tape, text: str) -> None:
    async def answer() -> str:
        return text

    asyncio.run(asked.play("m", {"model": "m", "messages": [{"role": "user", "content": "?"}]}, answer, FORM))


@pytest.fixture
def older(tmp_path: Path) -> Path:
    """A cassette of an earlier session."""
    first = tape(tmp_path / "c.yaml", "first")
    ask(first, "old")
    run_ended(first, case(), "success", 1.0)
    return tmp_path / "c.yaml"


def said(path: Path) -> list[str | None]:
    return [exchange.reply.content for exchange in read_cassette(path).exchanges]


def test_an_outage_leaves_an_older_cassette(older):
    anew = tape(older, "second")
    ask(anew, "half of it")
    assert run_ended(anew, case(), "provider_error", 2.0) == (2.0, "recorded", None)
    assert said(older) == ["old"]


@pytest.mark.parametrize("status", ["success", "failed", "timed_out", "invalid"])
def test_any_other_end_is_written(older, status):
    anew = tape(older, "second")
    ask(anew, "new")
    assert run_ended(anew, case(), status, 2.0) == (2.0, "recorded", None)
    assert said(older) == ["new"]


def test_an_outage_that_the_case_expects_is_written(older):
    anew = tape(older, "second")
    ask(anew, "new")
    run_ended(anew, case(EXPECTS_OUTAGE), "provider_error", 2.0)
    assert said(older) == ["new"]


def test_an_outage_of_a_recording_that_goes_on_is_written(tmp_path):
    """What `auto` adds to a cassette takes nothing away, so the next session need not ask again."""
    added = tape(tmp_path / "c.yaml", "second", "auto")
    ask(added, "new")
    run_ended(added, case(), "provider_error", 2.0)
    assert said(tmp_path / "c.yaml") == ["new"]


def test_without_a_cassette_there_is_nothing_to_write():
    assert run_ended(None, case(), "success", 2.0) == (2.0, None, None)


def test_an_unwritable_cassette_is_an_error_when_the_run_is_stored(tmp_path):
    anew = tape(tmp_path / "c.yaml", "second")
    ask(anew, "new")
    (tmp_path / "c.yaml").mkdir()
    seconds, state, error = run_ended(anew, case(), "success", 2.0)
    assert (seconds, state) == (2.0, "recorded")
    assert isinstance(error, UnwritableError)


def test_an_interrupted_recording_leaves_an_older_cassette(older):
    anew = tape(older, "second")
    ask(anew, "half of it")
    with pytest.raises(asyncio.CancelledError), run_kept(anew):
        raise asyncio.CancelledError
    assert said(older) == ["old"]


def test_an_interrupted_run_can_go_on_where_it_was(tmp_path):
    added = tape(tmp_path / "c.yaml", "second", "auto")
    ask(added, "new")
    with pytest.raises(asyncio.CancelledError), run_kept(added):
        raise asyncio.CancelledError
    assert said(tmp_path / "c.yaml") == ["new"]


def test_requests_of_judges_are_recorded_even_after_an_exception(tmp_path):
    added = tape(tmp_path / "c.yaml", "second", "auto")
    ask(added, "new")
    with pytest.raises(ZeroDivisionError), kept(added):
        raise ZeroDivisionError
    assert said(tmp_path / "c.yaml") == ["new"]
