from __future__ import annotations

import xml.etree.ElementTree as ElementTree

import jsonschema
import pytest
from support.bench import check
from support.fault_endpoint import FaultEndpoint, always, in_order, share_of

from pytest_agentbench.reports.reading import report_schema

SCHEMA = report_schema()
JUDGED = {"expectations": {"soft_expectations": [{"text": "is friendly"}]}}


def endpoint_model(bench, endpoint, **fields):
    bench.models({"model_id": "local", "base_url": endpoint.base_url, "api_key_env": "none", **fields})


def judge_profile(bench, name="judged", **fields):
    profile = {
        "schema_version": 1,
        "evaluation_profile_id": name,
        "title": name,
        "judges": [{"judge_id": "main", "type": "llm_probe", "model": "demo"}],
        "judge_runs": [{"judge_run_id": "main", "judge_id": "main", "repetitions": 1}],
        **fields,
    }
    bench.write(f"cases/evaluation_profiles/{name}.yaml", profile)


def reply(bench, case_id, text="Paris", score=9):
    judge = {"summary": "Seen.", "overall": {"score": score or 0, "evidence": ["x"]}}
    if score is not None:  # else the verdict is not complete, however often it is asked for
        judge["expectations"] = [{"kind": "soft", "index": 0, "met": 1, "evidence": "x"}]
    bench.write(f"cases/{case_id}/demo.yaml", {"schema_version": 1, "replies": [{"content": text}], "judge": judge})


def test_a_failed_check_is_a_failure_with_a_readable_report(bench):
    bench.agent()
    checks = [check("paris", kind="regex_match", pattern="Paris"), check("brief", kind="final_response_present")]
    bench.case("one", metadata={"says": "It is Rome, I think."}, deterministic_checks=checks)
    finished = bench.run()
    row = finished.runs["one[agent]"]
    assert (finished.exit, row["outcome"], row["status"]) == (1, "failed", "success")
    assert [(c["check_id"], c["outcome"]) for c in row["checks"]] == [("paris", "failed"), ("brief", "passed")]
    assert "It is Rome, I think." in finished.text
    assert row["artifact"] in finished.text
    assert "Traceback" not in finished.text
    assert "runtest" not in finished.text


def test_a_check_in_error_is_an_error(bench):
    bench.agent()
    bench.case("one", deterministic_checks=[check("odd", kind="json_path_equals", json_path="$.a", value=1)])
    bench.write("conftest.py", (bench.path / "conftest.py").read_text() + CHECKS)
    bench.case("two", deterministic_checks=[check("odd", kind="breaks")])
    finished = bench.run()
    assert finished.outcomes == {"one[agent]": "failed", "two[agent]": "error"}
    assert "check odd" in finished.runs["two[agent]"]["message"]


def test_failures_win_over_errors_of_checks(bench):
    bench.agent()
    bench.write("conftest.py", (bench.path / "conftest.py").read_text() + CHECKS)
    checks = [check("odd", kind="breaks"), check("rome", kind="regex_match", pattern="Rome")]
    bench.case("one", deterministic_checks=checks)
    assert bench.run().outcomes == {"one[agent]": "failed"}


CHECKS = """
def pytest_agentbench_checks():
    return {"breaks": lambda spec, context: 1 / 0}
"""


@pytest.mark.parametrize(
    ("hook", "workers"),
    [
        ("runners", ()),
        pytest.param("runners", ("-n", "2"), marks=pytest.mark.slow),
        ("tools", ()),
        ("checks", ()),
        ("metrics", ()),
    ],
)
def test_a_name_that_is_taken_is_one_clear_error(bench, hook, workers):
    name = {"runners": "llm_probe", "tools": "read_file", "checks": "status_is", "metrics": "exact_match"}[hook]
    thing = f"Tool({name!r}, 'Reads.', {{}}, print)" if hook == "tools" else "print"
    bench.agent(
        f"from pytest_agentbench import Tool\ndef pytest_agentbench_{hook}():\n    return {{{name!r}: {thing}}}\n"
    )
    bench.case("one")
    bench.case("two")
    finished = bench.run(*workers)
    assert finished.exit not in (0, 5)
    assert f"{name!r}, which exists already" in finished.text
    assert "Traceback" not in finished.text
    assert "INTERNALERROR" not in finished.text


def test_report_only_never_fails(bench):
    bench.agent()
    bench.case("one", metadata={"says": "Rome"}, report_only=True)
    bench.case("two", deterministic_checks=None, report_only=True)
    finished = bench.run()
    assert finished.exit == 0
    assert finished.outcomes == {"one[agent]": "passed", "two[agent]": "passed"}
    assert finished.runs["one[agent]"]["checks"][0]["outcome"] == "failed"


def test_a_case_that_nothing_decides_is_an_error_before_it_is_run(bench):
    bench.agent("import pytest\n@pytest.fixture(scope='session')\ndef agentbench_runner():\n    return 1 / 0\n")
    bench.agent()
    bench.case("one", deterministic_checks=None)
    finished = bench.run()
    assert finished.outcomes == {"one[agent]": "error"}
    assert "nothing decides this case" in finished.text
    assert finished.runs["one[agent]"]["status"] is None


def test_hooks_that_are_off_decide_nothing(bench):
    bench.agent()
    bench.write("cases/one/hook.py", "def check(artifact):\n    return True\n")
    hook = {"check_id": "mine", "python_hook": {"path": "hook.py", "callable_name": "check"}}
    bench.case("one", deterministic_checks=[hook])
    bench.case("two", deterministic_checks=[hook, check("paris", kind="regex_match", pattern="Paris")])
    bench.write("cases/two/hook.py", "def check(artifact):\n    return True\n")
    finished = bench.run()
    assert finished.outcomes == {"one[agent]": "error", "two[agent]": "passed"}
    assert "allow_local_python_hooks" in finished.text
    outcomes = {c["check_id"]: c["outcome"] for c in finished.runs["two[agent]"]["checks"]}
    assert outcomes == {"mine": "skipped", "paris": "passed"}
    assert "1 run passed, 1 of 2 checks skipped: Python hooks are off; to run this one, set sec" in finished.text


def test_a_skipped_check_is_shown_in_junit_and_is_an_error_if_strict(bench):
    bench.agent()
    bench.write("cases/two/hook.py", "def check(artifact):\n    return True\n")
    hook = {"check_id": "mine", "python_hook": {"path": "hook.py", "callable_name": "check"}}
    bench.case("two", deterministic_checks=[hook, check("paris", kind="regex_match", pattern="Paris")])
    finished = bench.run("--junit-xml=junit.xml")
    assert finished.outcomes == {"two[agent]": "passed"}
    junit = (bench.path / "junit.xml").read_text()
    assert '<property name="agentbench.checks" value="passed, 1 of 2 checks skipped"' in junit
    # The run is stored by now; a case without one is refused before anything is paid
    for arguments, said in (((), "1 of 2 checks did not run"), (("--agentbench-no-reuse",), "Python hooks are off")):
        finished = bench.run("--agentbench-strict", *arguments)
        assert finished.outcomes == {"two[agent]": "error"}
        assert said in finished.runs["two[agent]"]["message"]
    assert finished.runs["two[agent]"]["artifact"] is None


SKIPPING = """
from pytest_agentbench.checks.base import Verdict

def skip(spec, context):
    return Verdict("skipped", "it takes a printer")

def pytest_agentbench_checks():
    return {"printed": skip}
"""


@pytest.mark.parametrize(("fields", "outcome"), [({}, "error"), ({"report_only": True}, "passed")])
def test_a_run_of_which_no_check_has_run_is_an_error(bench, fields, outcome):
    bench.agent()
    with (bench.path / "conftest.py").open("a") as conftest:
        conftest.write(SKIPPING)
    bench.case("one", deterministic_checks=[check("paper", kind="printed")], **fields)
    finished = bench.run()
    assert finished.outcomes == {"one[agent]": outcome}
    if outcome == "error":
        assert "no check has run: it takes a printer" in finished.runs["one[agent]"]["message"]


@pytest.mark.slow
def test_a_judge_decides_at_its_threshold(bench):
    judge_profile(bench, aggregation={"method": "median", "pass_threshold": 0.6})
    for case_id, score in (("good", 6), ("bad", 5.9), ("mute", None)):
        bench.case(case_id, **JUDGED)
        reply(bench, case_id, score=score)
    finished = bench.run("--model", "demo", "--agentbench-evaluation-profile", "judged")
    assert finished.outcomes == {"bad[demo]": "failed", "good[demo]": "passed", "mute[demo]": "error"}
    assert finished.runs["good[demo]"]["final_score"] == 6
    assert finished.runs["mute[demo]"]["final_score"] is None
    assert "judge" in finished.runs["mute[demo]"]["message"]


def test_provider_failures_are_errors_unless_the_case_expects_them(bench):
    with FaultEndpoint(always("401")) as endpoint:
        endpoint_model(bench, endpoint)
        bench.case("one")
        bench.case("two", deterministic_checks=[check("down", kind="status_is", status="provider_error")])
        finished = bench.run("--model", "local")
    assert finished.outcomes == {"one[local]": "error", "two[local]": "passed"}
    assert finished.runs["one[local]"]["status"] == "provider_error"
    assert "Incorrect API key provided" in finished.runs["one[local]"]["message"]
    assert "Traceback" not in finished.text


@pytest.mark.slow
def test_retries_are_not_seen_by_the_verdict(bench):
    with FaultEndpoint(in_order("429-retry-after", "500"), answer=lambda _: PARIS) as endpoint:
        endpoint_model(bench, endpoint)
        bench.case("one")
        finished = bench.run("--model", "local")
        assert len(endpoint.requests) == 3
    assert finished.outcomes == {"one[local]": "passed"}


PARIS = {"role": "assistant", "content": "Paris"}


@pytest.mark.slow
def test_a_thousand_runs_at_thirty_percent_faults_lose_nothing(bench):
    with FaultEndpoint(share_of(0.3), retry_after=0.01, answer=lambda _: PARIS) as endpoint:
        endpoint_model(bench, endpoint, limits={"max_concurrency": 100})
        bench.profile("fast", runner_defaults={"timeout_seconds": 5, "retries": 8})
        bench.questions(1000)
        finished = bench.run("--model", "local", "--agentbench-concurrency", "100", "--agentbench-run-profile", "fast")
        assert sum(endpoint.faults.values()) - endpoint.faults["ok"] > 200
    assert finished.exit == 0
    assert finished.report["totals"]["passed"] == 1000
    assert len(list((bench.path / "outputs/runs").rglob("run_1.json"))) == 1000


@pytest.mark.slow
def test_the_report_follows_its_schema_and_counts_right(bench):
    bench.agent(MIXED)
    for case_id in ("good", "wrong", "broken", "absent"):
        bench.case(case_id, tags=["all"])
    finished = bench.run("--agentbench-repetitions", "2", "--junit-xml=junit.xml")
    jsonschema.validate(finished.report, SCHEMA)
    totals = finished.report["totals"]
    counted = {name: totals[name] for name in ("runs", "passed", "failed", "errors", "skipped")}
    assert counted == {"runs": 8, "passed": 2, "failed": 2, "errors": 2, "skipped": 2}
    assert totals["pass_rate"] == 0.5
    assert finished.report["session"]["exit_status"] == finished.exit == 1
    assert [row["nodeid"] for row in finished.report["runs"]][:2] == [
        "cases/absent/test.yaml::absent[agent]",
        "cases/absent/test.yaml::absent[agent-r2]",
    ]
    suite = ElementTree.parse(bench.path / "junit.xml").getroot()[0]
    cases = {case.get("name"): case for case in suite.iter("testcase")}
    assert len(cases) == 8
    of_case = {p.get("name"): p.get("value") for p in cases["good[agent-r2]"].iter("property")}
    assert of_case["agentbench.case_id"] == "good"
    assert of_case["agentbench.repetition"] == "2"
    assert of_case["agentbench.outcome"] == "passed"
    assert of_case["agentbench.check.paris"] == "passed"
    assert (bench.path / "outputs" / of_case["agentbench.artifact"]).is_file()
    of_suite = {p.get("name"): p.get("value") for p in suite.find("properties")}
    assert of_suite["agentbench.pass_rate"] == "0.5"
    assert [case.find("error") is not None for case in (cases["broken[agent]"], cases["wrong[agent]"])] == [True, False]
    assert cases["wrong[agent]"].find("failure") is not None


MIXED = """
import pytest

@pytest.fixture(scope="session")
def agentbench_runner():
    def agent(case):
        if case.case_id == "broken":
            raise OSError("no network")
        if case.case_id == "absent":
            pytest.skip("no such tool here")
        return "Rome" if case.case_id == "wrong" else "Paris"
    return agent
"""


@pytest.mark.slow
def test_workers_give_the_same_report_and_junit_file(bench):
    bench.agent(MIXED)
    for case_id in ("good", "wrong", "broken", "absent"):
        bench.case(case_id)
    bench.questions(20)
    serial = bench.run("--junit-xml=serial.xml")
    elsewhere = ("--agentbench-output=spread", "--agentbench-json=outputs/report.json")  # nothing is reused there
    spread = bench.run("-n", "2", "--junit-xml=spread.xml", *elsewhere)
    jsonschema.validate(spread.report, SCHEMA)
    assert spread.exit == serial.exit
    assert list(spread.outcomes.items()) == list(serial.outcomes.items())
    volatile = {"duration_seconds", "artifact", "message"}
    for name, row in serial.runs.items():
        assert {k: v for k, v in spread.runs[name].items() if k not in volatile} == {
            k: v for k, v in row.items() if k not in volatile
        }
    properties = [
        {
            case.get("name"): [
                (each.get("name"), each.get("value"))
                for each in case.iter("property")
                if "duration" not in each.get("name")
            ]
            for case in ElementTree.parse(bench.path / file).iter("testcase")
        }
        for file in ("serial.xml", "spread.xml")
    ]
    assert properties[0] == properties[1]
    assert all(properties[0].values())


def test_a_null_in_the_profile_removes_a_parameter_of_the_model(bench):
    bench.profile("own", runner_defaults={"temperature": None, "seed": 7, "a": None})
    bench.case("one")
    with FaultEndpoint() as endpoint:
        endpoint_model(bench, endpoint, parameters={"temperature": 0, "top_p": 0.5, "a": 1})
        bench.run("--model=local", "--agentbench-run-profile=own")
    (request,) = endpoint.requests
    sent = {name: request.body[name] for name in ("temperature", "top_p", "seed", "a") if name in request.body}
    assert sent == {"top_p": 0.5, "seed": 7}
