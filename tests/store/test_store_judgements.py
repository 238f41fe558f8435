from __future__ import annotations

import json
import logging
from concurrent.futures import ThreadPoolExecutor

import pytest

from pytest_agentbench.records.evaluation import AnswerVerdict, JudgeVerdict, Scored
from pytest_agentbench.store.fingerprints import fingerprint
from pytest_agentbench.store.judgements import Judgements
from pytest_agentbench.store.redaction import Redactor

KEY = fingerprint("a request")
YES = AnswerVerdict(correct=True, reason="Same city.")


def test_what_is_kept_is_found(tmp_path):
    kept = Judgements(tmp_path / "judgements")
    assert kept.find(KEY) is None
    kept.keep(KEY, "judge", YES)
    assert Judgements(tmp_path / "judgements").find(KEY) == YES
    assert kept.find(fingerprint("another")) is None
    [file] = (tmp_path / "judgements").rglob("*.*")
    assert file == tmp_path / "judgements" / KEY[:2] / f"{KEY}.json"


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
def test_a_broken_or_foreign_file_counts_as_none_and_is_replaced(tmp_path, content):
    kept = Judgements(tmp_path)
    kept.keep(KEY, "judge", YES)
    (tmp_path / KEY[:2] / f"{KEY}.json").write_text(content)
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
    assert "hunter2" not in (tmp_path / KEY[:2] / f"{KEY}.json").read_text()


def test_several_writers_leave_one_whole_file(tmp_path):
    def write(number: int) -> AnswerVerdict | None:
        kept = Judgements(tmp_path)
        kept.keep(KEY, "judge", AnswerVerdict(correct=True, reason=f"{number} " * 5000))
        return kept.find(KEY)

    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(write, range(80)))
    assert all(verdict is not None for verdict in found)
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == [f"{KEY}.json"]


def test_a_folder_that_takes_no_file_is_said_once(tmp_path, caplog):
    (tmp_path / "judgements").write_text("a file stands where the folder would")
    with caplog.at_level(logging.WARNING):
        for number in range(3):
            Judgements(tmp_path / "judgements").keep(fingerprint(number), "judge", YES)
    [record] = caplog.records
    assert "judgements cannot be kept there" in record.getMessage()
    assert Judgements(tmp_path / "judgements").find(KEY) is None
