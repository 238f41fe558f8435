from __future__ import annotations

import json
import logging
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from support.stored import as_files, find_stored, list_stored

from pytest_agentbench.identity.fingerprints import fingerprint
from pytest_agentbench.records.evaluation import AnswerVerdict, JudgeVerdict, Scored
from pytest_agentbench.secrets.redaction import Redactor
from pytest_agentbench.store.judgements import Judgements

KEY = fingerprint("a request")
YES = AnswerVerdict(correct=True, reason="Same city.")


def test_a_stored_judgement_is_found(tmp_path):
    kept = Judgements(tmp_path)
    assert kept.find(KEY) is None
    kept.keep(KEY, "judge", YES)
    assert Judgements(tmp_path).find(KEY) == YES
    assert kept.find(fingerprint("another")) is None
    assert list_stored(tmp_path) == [f"judgements/{KEY[:2]}/{KEY}.json"]


@pytest.mark.parametrize(
    "content",
    [
        "",
        '{"schema_version":1,"key"',
        "[]",
        json.dumps({"schema_version": 2, "key": KEY, "model": "m", "verdict": YES.model_dump()}),
        json.dumps({"schema_version": 1, "key": KEY, "model": "m", "verdict": {"correct": "yes", "reason": ""}}),
        json.dumps({"schema_version": 1, "key": fingerprint("other"), "model": "m", "verdict": YES.model_dump()}),
    ],
)
@pytest.mark.parametrize("turn", [Path, as_files], ids=["database", "files"])
def test_a_broken_or_foreign_file_counts_as_none_and_is_replaced(tmp_path, content, turn):
    kept = Judgements(tmp_path)
    kept.keep(KEY, "judge", YES)
    turn(tmp_path)
    find_stored(tmp_path, f"{KEY}.json")[0].write_text(content)
    assert kept.find(KEY) is None
    kept.keep(KEY, "judge", YES)
    assert kept.find(KEY) == YES


def test_verdicts_with_scores_are_kept_beside_votes(tmp_path):
    scores = JudgeVerdict(summary="", dimensions={"grounding": Scored(score=7)}, overall=Scored(score=7))
    kept, key = Judgements(tmp_path), fingerprint("a run")
    kept.keep(KEY, "judge", YES)
    kept.keep(key, "judge", scores)
    assert (kept.find_scores(key), kept.find(KEY)) == (scores, YES)
    assert (kept.find_scores(KEY), kept.find(key)) == (None, None)


def test_secrets_are_not_kept(tmp_path):
    kept = Judgements(tmp_path, Redactor({"MY_API_KEY": "hunter2-hunter2"}))
    kept.keep(KEY, "judge", AnswerVerdict(correct=False, reason="It says hunter2-hunter2."))
    assert kept.find(KEY) == AnswerVerdict(correct=False, reason="It says [redacted].")
    assert "[redacted]" in (found := find_stored(tmp_path, f"{KEY}.json")[0].read_text())
    assert "hunter2" not in found


@pytest.mark.parametrize("length", [5_000, pytest.param(50_000, marks=pytest.mark.slow)])
def test_several_writers_leave_one_whole_document(tmp_path, length):
    def write(number: int) -> AnswerVerdict | None:
        kept = Judgements(tmp_path)
        kept.keep(KEY, "judge", AnswerVerdict(correct=True, reason=f"{number} " * length))
        return kept.find(KEY)

    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(write, range(80)))
    assert all(verdict is not None for verdict in found)
    assert all(len(set(verdict.reason.split())) == 1 for verdict in found)
    assert list_stored(tmp_path) == [f"judgements/{KEY[:2]}/{KEY}.json"]


def test_a_folder_that_takes_no_file_is_said_once(tmp_path, caplog):
    (tmp_path / "outputs").write_text("a file stands where the folder would")
    folder = tmp_path / "outputs"
    with caplog.at_level(logging.WARNING):
        for number in range(3):
            Judgements(folder).keep(fingerprint(number), "judge", YES)
    [record] = caplog.records
    assert "judgements cannot be stored" in record.getMessage()
    assert Judgements(folder).find(KEY) is None
