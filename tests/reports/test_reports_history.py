"""Trends and policy of cases from recorded sessions, and the file that holds them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from pytest_agentbench.reports.history import Rules, find_trends
from pytest_agentbench.reports.history_file import append_session, encode_verdict
from pytest_agentbench.reports.recorded_sessions import RecordedSession, Verdict, read_history

LAST = datetime(2026, 11, 28, 12, tzinfo=UTC)
OUTCOMES = {"p": "passed", "f": "failed", "e": "error"}


def session(outcomes: str, days_ago: float = 0, *, suite: str | None = None, **fields) -> RecordedSession:
    """Return a session of a case with a repetition for each letter."""
    values = {"fingerprint": "a", "measure": "m", **fields}
    verdicts = (
        Verdict("t.yaml::a", "a", "small", OUTCOMES[letter], number, **values)
        for number, letter in enumerate(outcomes, 1)
    )
    return RecordedSession(LAST - timedelta(days=days_ago), suite, tuple(verdicts))


def trend(*sessions: RecordedSession, **rules):
    (found,) = find_trends(sessions, Rules(**rules))
    return found


def test_21_passes_in_seven_days_make_a_case_blocking():
    days = [session("ppp", days_ago) for days_ago in range(7)]
    found = trend(*days)
    assert (found.policy, found.passed, found.flips) == ("blocking", 21, 0)
    assert [day.judged for day in found.days] == [3] * 7
    assert trend(*days[:6], session("ppp", 7)).policy is None, "the eighth day does not count"
    assert trend(*days, passes=22).policy is None


def test_a_failure_before_the_last_21_passes_does_not_count():
    assert trend(session("fff", 3), session("p" * 21)).policy == "blocking"
    assert trend(session("p" * 21, 3), session("f")).policy is None


def test_a_case_that_flips_more_than_chance_is_quarantined():
    found = trend(*(session("pfpp", days_ago) for days_ago in range(7)))
    assert (found.policy, found.flips) == ("quarantined", 14)
    assert found.p_value == pytest.approx(3.016e-5, rel=1e-3)
    assert "14 flips in 28 runs" in found.reason


@pytest.mark.parametrize(
    "outcomes", ["p" * 10 + "f" * 10, "p" * 10 + "f" + "p" * 10, "f" * 20, "pf", "pfp", "pepepepepe"]
)
def test_regressions_accidents_and_errors_are_not_quarantined(outcomes):
    assert trend(session(outcomes)).policy is None


def test_a_case_that_must_pass_is_never_quarantined():
    assert trend(session("pf" * 10, must_pass=True)).policy is None


def test_flips_with_a_change_in_between_do_not_count():
    changing = [session("p" if day % 2 else "f", day, fingerprint=str(day)) for day in range(7)]
    found = trend(*changing)
    assert (found.flips, found.policy, found.changed) == (0, None, LAST.date())


def test_verdicts_by_earlier_checks_do_not_count():
    found = trend(session("pf" * 10, 2, measure="old"), session("p" * 21))
    assert (found.policy, found.changed, found.flips, found.passed) == ("blocking", LAST.date(), 0, 31)


def test_an_error_without_fingerprint_is_no_change():
    assert trend(session("p", 2), session("e", 1, fingerprint=None, measure=None), session("p")).changed is None


def test_suites_and_models_have_trends_of_their_own():
    trends = find_trends([session("p"), session("f", 1, suite="smoke")], Rules())
    assert [(each.series.suite, each.passed, each.judged) for each in trends] == [("", 1, 1), ("smoke", 0, 1)]


def test_a_session_in_a_history_and_as_a_report_counts_once():
    assert trend(session("pp"), session("pp")).judged == 2


def test_sessions_are_read_back_and_broken_lines_are_skipped(tmp_path):
    text = b'{"case":"t::a","case_id":"a","model":"small","repetition":1,"outcome":"passed"}'
    append_session(tmp_path, LAST, None, [text])
    with (tmp_path / "history.ndjson").open("ab") as file:
        file.write(
            b'{"history":1,"started_at":"2026-11-28T12:00:00","suite":3,"verdicts":[]}\n[1]\n{"history":2}\n{"hi'
        )
    append_session(tmp_path, LAST, "smoke", [text, text])
    sessions = [*read_history(tmp_path / "history.ndjson")]
    assert [each and (each.suite, len(each.verdicts)) for each in sessions] == [
        (None, 1), None, None, None, None, ("smoke", 2),
    ]  # fmt: skip


@pytest.mark.parametrize("make", [lambda path: path.symlink_to("elsewhere"), lambda path: path.mkdir()])
def test_only_a_plain_file_is_appended_to(tmp_path, make):
    make(tmp_path / "history.ndjson")
    with pytest.raises(OSError, match="history"):
        append_session(tmp_path, LAST, None, [b"{}"])
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.parametrize(
    ("change", "recorded"),
    [({}, True), ({"reused": True}, False), ({"cassette": "replayed"}, False), ({"cassette": "recorded"}, True),
     ({"predictions": "a.jsonl"}, False), ({"outcome": "skipped"}, False), ({"outcome": "error"}, True)],
)  # fmt: skip
def test_only_runs_that_the_session_made_are_recorded(change, recorded):
    row = {"nodeid": "t.yaml::a[small]", "case_id": "a", "model_id": "small", "repetition": 1, "outcome": "passed"}
    row |= {"reused": False, "cassette": None, "predictions": None, "fingerprint": None, "measure": None}
    assert (encode_verdict({**row, "must_pass": False, **change}) is not None) == recorded
