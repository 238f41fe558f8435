"""What one model's trouble does to the rest of a session: errors that repeat, refused keys, endpoints that are gone."""

from __future__ import annotations

import re
import time

import pytest
from support.fault_endpoint import FaultEndpoint, always

PARIS = {"role": "assistant", "content": "Paris"}


def two_models(bench, bad: str, good: str, **fields) -> tuple[str, ...]:
    """Models `bad` and `good`, each at its own address, and the options that name them."""
    entry = {"api_key_env": "none", "limits": {"max_concurrency": 2}, **fields}
    bench.models({"model_id": "bad", "base_url": bad, **entry}, {"model_id": "good", "base_url": good, **entry})
    return "--model", "bad", "--model", "good"


def outcomes_of(finished, model: str) -> list[str]:
    return [row["outcome"] for row in finished.report["runs"] if row["model_id"] == model]


@pytest.mark.slow
@pytest.mark.parametrize("gate", [(), ("--agentbench-fail-under", "0.5", "--agentbench-min-completion", "0.1")])
def test_three_equal_errors_stop_that_model_and_no_other(bench, gate):
    bench.profile("strict", policy={"stop_on_runner_error": True, "max_concurrency": 4})
    bench.questions(20)
    with FaultEndpoint(always("400")) as bad, FaultEndpoint(answer=lambda _: PARIS) as good:
        finished = bench.run(
            *two_models(bench, bad.base_url, good.base_url), "--agentbench-run-profile", "strict", *gate
        )
        assert 3 <= len(bad.requests) <= 7  # and what was in flight
    assert outcomes_of(finished, "good") == ["passed"] * 20
    stopped = outcomes_of(finished, "bad")
    assert stopped.count("error") + stopped.count("skipped") == 20
    assert stopped.count("error") == len(bad.requests)
    assert finished.exit == 1
    [told] = finished.report["session"]["warnings"]
    assert "bad is stopped: 3 equal errors in a row (execution_policy.stop_on_runner_error" in told
    assert "Unsupported parameter: 'banana'" in told
    assert f"{stopped.count('skipped')} runs were not started" in told
    # the errors are alike, so they are shown once; each has its row
    assert finished.text.count("ERROR at setup of") == 1
    alike = stopped.count("error") - 1
    assert f"and {alike} more with the same error" in finished.text
    assert f"(and {alike} more) model 'bad' at " in finished.text  # the list of the worst cases
    assert f"{alike + 1} errors" in finished.text  # pytest's own count


@pytest.mark.slow
def test_a_filtered_prompt_and_an_overlong_one_stop_nothing(bench):
    bench.profile("strict", policy={"stop_on_runner_error": True})
    bench.questions(20)
    faults = {"question 2?": "filtered", **{f"question {number}?": "context" for number in (3, 4, 5)}}
    with FaultEndpoint(lambda message, nth: faults.get(message, "ok"), answer=lambda _: PARIS) as endpoint:
        bench.models({"model_id": "m", "base_url": endpoint.base_url, "api_key_env": "none"})
        finished = bench.run("--model", "m", "--agentbench-run-profile", "strict")
        again = bench.run("--model", "m", "--agentbench-run-profile", "strict")
        assert len(endpoint.requests) == 20  # they would be the same the next time
    assert outcomes_of(finished, "m") == ["passed"] * 2 + ["failed"] * 4 + ["passed"] * 14
    assert outcomes_of(again, "m") == outcomes_of(finished, "m")
    assert finished.report["models"][0]["ends"] == {"answered": 16, "context_exceeded": 3, "filtered": 1}


def test_errors_that_differ_or_are_one_cases_own_stop_nothing(bench):
    bench.profile("strict", policy={"stop_on_runner_error": True})
    bench.questions(12)
    faults = {"question 0?": "400", "question 1?": "400", "question 3?": "context", "question 4?": "400"}
    with FaultEndpoint(lambda message, nth: faults.get(message, "ok"), answer=lambda _: PARIS) as endpoint:
        bench.models({"model_id": "m", "base_url": endpoint.base_url, "api_key_env": "none"})
        finished = bench.run("--model", "m", "--agentbench-run-profile", "strict")
    assert outcomes_of(finished, "m") == ["error"] * 2 + ["passed", "failed", "error"] + ["passed"] * 7


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["401", "403", "quota"])
def test_a_refused_key_stops_its_model_without_any_profile(bench, fault):
    bench.questions(60)
    with FaultEndpoint(always(fault)) as bad, FaultEndpoint(answer=lambda _: PARIS) as good:
        finished = bench.run(*two_models(bench, bad.base_url, good.base_url), "--agentbench-concurrency", "4")
        asked = len(bad.requests)
    assert 1 <= asked <= 4  # at once, but for what was in flight
    assert outcomes_of(finished, "good") == ["passed"] * 60
    assert sorted(outcomes_of(finished, "bad")) == ["error"] * asked + ["skipped"] * (60 - asked)
    assert finished.exit == 1
    assert finished.text.count("ERROR at setup of") == 1


HOOK = "def check():\n    raise RuntimeError('the hook is broken')\n"


@pytest.mark.slow
def test_errors_of_checks_and_judges_do_not_stop_a_model(bench):
    bench.profile("strict", policy={"stop_on_runner_error": True, "max_concurrency": 1})
    judged = {
        "schema_version": 1,
        "evaluation_profile_id": "judged",
        "title": "judged",
        "judges": [{"judge_id": "main", "type": "llm_probe", "model": "judge", "retries": 0}],
        "judge_runs": [{"judge_run_id": "main", "judge_id": "main", "repetitions": 1}],
        "security_policy": {"allow_local_python_hooks": True},
    }
    bench.write("cases/evaluation_profiles/judged.yaml", judged)
    bench.write("cases/hook.py", HOOK)
    rubric = {"criteria": [{"name": "right", "what_good_looks_like": "Says Paris"}]}
    for number in range(4):
        bench.case(f"judged{number}", rubric=rubric)
        hook = {"path": "../hook.py", "callable_name": "check"}
        bench.case(f"hooked{number}", deterministic_checks=[{"check_id": "h", "python_hook": hook}])
    with FaultEndpoint(answer=lambda _: PARIS) as endpoint:
        there = {"base_url": endpoint.base_url, "api_key_env": "none"}
        bench.models({"model_id": "m", **there}, {"model_id": "judge", **there})
        options = ("--agentbench-run-profile", "strict", "--agentbench-evaluation-profile", "judged")
        finished = bench.run("--model", "m", *options)
        assert len([request for request in endpoint.requests if request.body["model"] == "m"]) == 8
    assert outcomes_of(finished, "m") == ["error"] * 8
    assert "no judge gave a verdict" in finished.text
    assert "the hook is broken" in finished.text


@pytest.mark.slow
def test_an_endpoint_that_is_dead_from_the_start_is_known_so_within_seconds(bench):
    bench.questions(500)
    bench.profile("patient", policy={"max_concurrency": 64}, runner_defaults={"retries": 8})
    with FaultEndpoint() as gone:
        pass
    with FaultEndpoint(answer=lambda _: PARIS) as good:
        models = two_models(bench, gone.base_url, good.base_url)
        finished = bench.run(*models, "--agentbench-run-profile", "patient", "--junit-xml", "junit.xml")
    assert outcomes_of(finished, "good") == ["passed"] * 500
    bad = outcomes_of(finished, "bad")
    assert set(bad) == {"error", "skipped"}
    assert bad.count("error") <= 64
    assert finished.exit == 1
    assert finished.text.count("ERROR at setup of") == 1
    seconds = re.search(r"has been down for (\d+) s, so it is not asked any more", finished.text)
    assert int(seconds[1]) < 15
    assert (bench.path / "junit.xml").read_text().count("<error ") == bad.count("error")


@pytest.mark.slow
def test_an_outage_in_the_middle_pauses_and_goes_on_with_one_line(bench):
    bench.questions(120)
    bench.profile("limited", policy={"max_concurrency": 8}, run_timeout_seconds=4)
    down: list[float] = []

    def choose(message: str, nth: int) -> str:
        if message == "question 20?":
            down[:] = down or [time.monotonic()]
        return "503" if down and time.monotonic() - down[0] < 6 else "ok"

    with FaultEndpoint(choose, latency=0.05, answer=lambda _: PARIS) as endpoint:
        bench.models({"model_id": "m", "base_url": endpoint.base_url, "api_key_env": "none"})
        finished = bench.run("--model", "m", "--agentbench-run-profile", "limited")
        assert endpoint.faults["503"] < 60
    assert outcomes_of(finished, "m") == ["passed"] * 120  # a run's limit does not pass during the pause
    assert finished.exit == 0
    [told] = finished.report["session"]["warnings"]
    assert f"{endpoint.base_url} did not answer for " in told
    assert "runs waited and went on" in told


@pytest.mark.slow
@pytest.mark.parametrize("workers", [(), ("-n", "2")])
@pytest.mark.parametrize("fault", ["401", "403"])
def test_one_prompt_that_a_firewall_refuses_is_one_error(bench, fault, workers):
    bench.questions(60)
    refused = {"question 3?"}  # among the first in flight, and refused before any is answered
    choose = lambda message, nth: fault if message in refused else "ok"  # noqa: E731
    with FaultEndpoint(choose, answer=lambda _: PARIS, latency=0.05, quick=frozenset({fault})) as endpoint:
        bench.models({"model_id": "m", "base_url": endpoint.base_url, "api_key_env": "none"})
        finished = bench.run("--model", "m", "--agentbench-concurrency", "8", *workers)
    assert sorted(outcomes_of(finished, "m")) == ["error"] + ["passed"] * 59
    assert finished.report["models"][0]["ends"] == {"answered": 59, "request_refused": 1}
    assert "1 refused for this request" in finished.text


@pytest.mark.slow
def test_a_key_that_is_revoked_stops_its_model_soon(bench):
    bench.questions(200)
    revoked: list[str] = []

    def choose(message: str, nth: int) -> str:
        revoked.extend(["now"] if message == "question 50?" else [])
        return "401" if revoked else "ok"

    with FaultEndpoint(choose, answer=lambda _: PARIS, latency=0.05) as endpoint:
        bench.models({"model_id": "m", "base_url": endpoint.base_url, "api_key_env": "none"})
        finished = bench.run("--model", "m", "--agentbench-concurrency", "8")
        assert endpoint.faults["401"] <= 3 * 8
    ended = outcomes_of(finished, "m")
    assert ended.count("failed") == 0
    assert ended.count("error") == endpoint.faults["401"]
    assert ended.count("skipped") == 200 - len(endpoint.requests)
    assert "with the key refused" in finished.text
    [told] = finished.report["session"]["warnings"]
    assert "m is stopped: " in told


@pytest.mark.slow
@pytest.mark.parametrize("workers", [(), ("-n", "2")])
def test_rate_limits_that_were_waited_out_are_one_line(bench, workers):
    bench.questions(30)
    choose = lambda message, nth: "429" if nth == 0 and message.endswith("0?") else "ok"  # noqa: E731
    with FaultEndpoint(choose, answer=lambda _: PARIS) as endpoint:
        bench.models({"model_id": "m", "base_url": endpoint.base_url, "api_key_env": "none"})
        finished = bench.run("--model", "m", *workers)
    assert outcomes_of(finished, "m") == ["passed"] * 30
    [limited] = finished.report["session"]["rate_limits"]
    assert (limited["model_id"], limited["replies"]) == ("m", 3)
    [told] = finished.report["session"]["warnings"]
    assert told == f"m: waited for 3 rate limits (status 429), {limited['seconds']:g} s in all"
    assert finished.text.count(told) == 1
