"""Nothing is paid twice: what a session asks for again, counted where the requests arrive."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter

import pytest
from support.bench import LEAN, check
from support.fault_endpoint import FaultEndpoint

from pytest_agentbench.records.base import DIMENSIONS
from pytest_agentbench.store.claims import is_claimed


class Campaign:
    """Two cases on a model of an endpoint, judged by another model of it. `asked` counts requests by model."""

    def __init__(self, bench, endpoint, *cases: str) -> None:
        self.bench, self.endpoint, self.cases = bench, endpoint, cases
        self.subject_fault = self.judge_fault = "ok"
        endpoint.choose, endpoint.answer = self._fault, self._answer
        there = {"base_url": endpoint.base_url, "api_key_env": "none"}
        bench.models({"model_id": "subject", **there}, {"model_id": "judge", **there})
        self.profile()
        for case_id in cases:
            self.case(case_id)

    def case(self, case_id: str, question: str = "The capital of France?", good: str = "Says Paris", **fields) -> None:
        message = {"role": "user", "content": f"{question} ({case_id})"}
        rubric = {"criteria": [{"name": "right", "what_good_looks_like": good}]}
        self.bench.case(case_id, input={"messages": [message]}, rubric=rubric, **fields)

    def profile(self, name: str = "judged", **fields) -> None:
        profile = {
            "schema_version": 1,
            "evaluation_profile_id": name,
            "title": name,
            "judges": [{"judge_id": "main", "type": "llm_probe", "model": "judge"}],
            "judge_runs": [{"judge_run_id": "main", "judge_id": "main", "repetitions": 1}],
            **fields,
        }
        self.bench.write(f"cases/evaluation_profiles/{name}.yaml", profile)

    def asked(self, *args: str, outcome: str | None = "passed") -> tuple[int, int]:
        """How many requests a session sent to the subject and to the judge; each of its runs has the outcome."""
        before = len(self.endpoint.requests)
        self.finished = self.bench.run("--model=subject", "--agentbench-evaluation-profile=judged", *args)
        assert set(self.finished.outcomes.values()) == {outcome}, self.finished.text
        models = Counter(request.body["model"] for request in self.endpoint.requests[before:])
        return models["subject"], models["judge"]

    @property
    def reused(self) -> list[tuple[bool, bool]]:
        """Of each run of the last session, whether it and its verdict were in the store."""
        return [(row["reused"], row["evaluation_reused"]) for row in self.finished.runs.values()]

    def _is_judge(self, message: str) -> bool:
        return "Paris" in message

    def _fault(self, message: str, nth: int) -> str:
        return self.judge_fault if self._is_judge(message) else self.subject_fault

    def _answer(self, body: dict) -> dict:
        content = "It is Paris."
        if body["model"] == "judge":
            scored = {"score": 8, "evidence": ["It says so."]}
            verdict = {"summary": "Fine.", "dimensions": dict.fromkeys(DIMENSIONS, scored), "overall": scored}
            content = json.dumps(verdict)
        return {"role": "assistant", "content": content}


@pytest.fixture
def campaign(bench):
    with FaultEndpoint() as endpoint:
        yield Campaign(bench, endpoint, "one", "two")


@pytest.mark.slow
def test_an_unchanged_session_asks_for_nothing(campaign):
    assert campaign.asked() == (2, 2)
    assert campaign.reused == [(False, False)] * 2
    assert campaign.asked() == (0, 0)
    assert campaign.reused == [(True, True)] * 2


@pytest.mark.slow
def test_an_edited_rubric_asks_the_judge_only(campaign):
    campaign.asked()
    campaign.case("two", good="Says Paris, and why")
    assert campaign.asked() == (0, 1)
    assert campaign.reused == [(True, True), (True, False)]
    assert campaign.asked() == (0, 0)


@pytest.mark.slow
def test_an_edited_prompt_asks_both(campaign):
    campaign.asked()
    campaign.case("two", question="Which city is the capital of France?")
    assert campaign.asked() == (1, 1)
    assert campaign.reused == [(True, True), (False, False)]


@pytest.mark.slow
def test_an_edit_that_is_taken_back_asks_for_nothing(campaign):
    campaign.asked()
    campaign.case("two", question="Which city is the capital of France?", good="Says Paris, and why")
    assert campaign.asked() == (1, 1)
    campaign.case("two")
    assert campaign.asked() == (0, 0)
    campaign.case("two", question="Which city is the capital of France?", good="Says Paris, and why")
    assert campaign.asked() == (0, 0)


def test_changes_without_effect_on_a_result_send_no_request(campaign):
    campaign.asked()
    campaign.case("two", tags=["hard"], must_pass=True)
    campaign.bench.profile("wide", policy={"max_concurrency": 3, "fail_fast": True})
    assert campaign.asked("--agentbench-run-profile=wide", "--agentbench-concurrency=1") == (0, 0)


@pytest.mark.slow
def test_more_repetitions_ask_for_those_that_are_missing(campaign):
    assert campaign.asked("--agentbench-repetitions=3") == (6, 6)
    assert campaign.asked("--agentbench-repetitions=5", "-k", "one") == (2, 2)
    assert campaign.reused == [(True, True)] * 3 + [(False, False)] * 2
    assert campaign.asked("--agentbench-repetitions=2") == (0, 0)


@pytest.mark.slow
def test_a_judge_that_failed_is_asked_again_alone(campaign):
    campaign.judge_fault = "401"
    subject, judge = campaign.asked(outcome="error")
    assert (subject, judge) == (2, 2)
    campaign.judge_fault = "ok"
    assert campaign.asked() == (0, 2)
    assert campaign.reused == [(True, False)] * 2
    assert campaign.asked() == (0, 0)


@pytest.mark.slow
def test_a_run_that_its_provider_failed_is_made_again(campaign):
    campaign.subject_fault = "401"
    assert campaign.asked(outcome="error") == (2, 0)
    campaign.subject_fault = "ok"
    assert campaign.asked() == (2, 2)
    assert campaign.asked() == (0, 0)


@pytest.mark.slow
def test_no_reuse_asks_for_all_of_it(campaign):
    campaign.asked()
    assert campaign.asked("--agentbench-no-reuse") == (2, 2)
    assert campaign.reused == [(False, False)] * 2
    assert campaign.asked() == (0, 0)


@pytest.mark.slow
def test_rejudge_asks_the_judge_only(campaign):
    campaign.asked()
    assert campaign.asked("--agentbench-rejudge") == (0, 2)
    assert campaign.reused == [(True, False)] * 2
    assert campaign.asked() == (0, 0)


@pytest.mark.slow
def test_an_outage_takes_nothing_of_what_was_paid(campaign):
    campaign.asked()
    campaign.subject_fault = "401"
    assert campaign.asked("--agentbench-no-reuse", outcome="error") == (2, 0)
    assert campaign.asked() == (0, 0)
    assert campaign.reused == [(True, True)] * 2


@pytest.mark.slow
def test_an_outage_of_the_judge_takes_no_verdict(campaign):
    campaign.asked()
    campaign.judge_fault = "401"
    assert campaign.asked("--agentbench-rejudge", outcome="error") == (0, 2)
    assert campaign.asked() == (0, 0)
    assert campaign.reused == [(True, True)] * 2


@pytest.mark.slow
def test_another_suite_has_what_the_whole_session_paid(campaign):
    suite = {"schema_version": 1, "suite_id": "smoke", "title": "Smoke", "models": []}
    campaign.bench.write("cases/suites/smoke.yaml", {**suite, "case_selection": {"include_case_ids": ["one"]}})
    campaign.asked()
    assert campaign.asked("--agentbench-suite=smoke") == (0, 0)
    assert list(campaign.finished.runs) == ["one[subject]"]
    assert campaign.reused == [(True, True)]
    campaign.case("one", good="Says Paris at once")
    assert campaign.asked("--agentbench-suite=smoke") == (0, 1)
    assert campaign.asked() == (0, 0)


@pytest.mark.slow
def test_a_run_that_failed_is_made_again_unless_the_profile_reuses_it(bench):
    bench.write(
        "conftest.py",
        """
import pytest
from pytest_agentbench import RunOutput

@pytest.fixture(scope="session")
def agentbench_runner():
    def agent(case):
        with open("runs.txt", "a") as file:
            file.write(case.case_id + "\\n")
        return RunOutput(output="Paris", status="failed", error="out of maps")
    return agent
""",
    )
    bench.profile("plain")
    bench.profile("keeping", reuse_unsuccessful=True)
    bench.case("one")
    bench.case("expected", deterministic_checks=[check("failed", kind="status_is", status="failed")])
    for profile, expected in (("plain", ["one", "expected"]), ("plain", ["one"]), ("keeping", [])):
        before = bench.lines("runs.txt")
        finished = bench.run(f"--agentbench-run-profile={profile}")
        assert finished.outcomes == {"expected[agent]": "passed", "one[agent]": "failed"}
        assert sorted(bench.lines("runs.txt")[len(before) :]) == sorted(expected)


def test_arguments_that_nest_without_end_are_paid_for_once(bench):
    deep = "[" * 220 + "]" * 220

    def answer(body):
        if any(message["role"] == "tool" for message in body["messages"]):
            return {"role": "assistant", "content": "Paris"}
        function = {"name": "read_file", "arguments": f'{{"path": {deep}}}'}
        return {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "1", "type": "function", "function": function}],
        }

    with FaultEndpoint(answer=answer) as endpoint:
        bench.models({"model_id": "subject", "base_url": endpoint.base_url, "api_key_env": "none"})
        bench.case("deep", runner={"type": "llm_probe", "overrides": {"tools": ["read_file"]}})
        for _ in range(2):
            assert bench.run("--model=subject").outcomes == {"deep[subject]": "passed"}
        assert len(endpoint.requests) == 2


@pytest.mark.slow
def test_hand_written_tests_share_what_cases_paid(campaign):
    campaign.asked()
    source = "import pytest\n\n@pytest.mark.agentbench('one')\ndef test_it(agentbench_run):\n"
    campaign.bench.write("test_marked.py", source + "    assert 'Paris' in agentbench_run.output\n")
    assert campaign.asked() == (0, 0)


@pytest.mark.slow
def test_a_session_that_reuses_all_of_it_makes_no_client(campaign):
    campaign.asked()
    campaign.bench.write("conftest.py", "import sys\n\ndef pytest_unconfigure():\n    print('openai' in sys.modules)\n")
    finished = campaign.bench.spawn("--model=subject", "--agentbench-evaluation-profile=judged", "-s")
    assert finished.text.rstrip().endswith("False")
    assert all(row["reused"] and row["evaluation_reused"] for row in finished.runs.values())


@pytest.mark.slow
@pytest.mark.parametrize("workers", [0, 4])
def test_two_sessions_at_once_pay_each_run_once(bench, workers):
    with FaultEndpoint(latency=0.05) as endpoint:
        campaign = Campaign(bench, endpoint, *(f"case{number}" for number in range(20)))
        command = [sys.executable, "-m", "pytest", *LEAN, "--model=subject", "--agentbench-concurrency=8"]
        command += ["--agentbench-evaluation-profile=judged", *(["-n", str(workers)] if workers else [])]
        reports = [bench.path / f"report{number}.json" for number in range(2)]
        sessions = [subprocess.Popen([*command, f"--agentbench-json={report}"], cwd=bench.path) for report in reports]
        assert [session.wait(180) for session in sessions] == [0, 0]
        assert set(Counter((each.body["model"], each.message) for each in endpoint.requests).values()) == {1}
        assert len(endpoint.requests) == 40
        rows = [row for report in reports for row in json.loads(report.read_text())["runs"]]
        assert len(rows) == 40
        assert sum(row["reused"] for row in rows) == 20
        assert not is_claimed(str(bench.path / "outputs"))
        assert campaign.asked() == (0, 0)


# -- votes of metrics that ask a model, which cases share


def voted(bench, endpoint, *cases: str) -> None:
    endpoint.answer = lambda body: {"role": "assistant", "content": '{"reason": "It is so.", "correct": true}'}
    bench.agent()
    bench.models({"model_id": "judge", "base_url": endpoint.base_url, "api_key_env": "none"})
    question = {"messages": [{"role": "user", "content": "The capital of France?"}]}
    metrics = [{"name": "llm_judgement", "threshold": 1.0, "args": {"model": "judge"}}]
    for case_id in cases:
        bench.case(case_id, input=question, reference="Paris", metrics=metrics, deterministic_checks=None)


@pytest.mark.slow
def test_kept_votes_are_asked_for_anew_where_verdicts_are(bench):
    with FaultEndpoint() as endpoint:
        voted(bench, endpoint, "one", "two")
        for options, expected in (
            ([], 1),
            ([], 0),
            (["--agentbench-rejudge"], 1),
            (["--agentbench-no-reuse"], 1),
            ([], 0),
        ):
            before = len(endpoint.requests)
            assert set(bench.run(*options).outcomes.values()) == {"passed"}
            assert len(endpoint.requests) - before == expected


@pytest.mark.slow
def test_two_sessions_at_once_pay_the_same_vote_once(bench):
    with FaultEndpoint(latency=3) as endpoint:
        voted(bench, endpoint, "one", "two")
        command = [sys.executable, "-m", "pytest", *LEAN, "-k"]
        sessions = [subprocess.Popen([*command, case_id], cwd=bench.path) for case_id in ("one", "two")]
        assert [session.wait(180) for session in sessions] == [0, 0]
        assert len(endpoint.requests) == 1
