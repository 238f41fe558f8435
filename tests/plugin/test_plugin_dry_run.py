from __future__ import annotations

import pytest
from support.bench import ECHO_TO_FILE, check
from support.fault_endpoint import FaultEndpoint

PRICES = {"input_per_1m": 100_000, "output_per_1m": 0}  # a reply has 10 input tokens: 1 USD
JUDGE = {
    "schema_version": 1,
    "evaluation_profile_id": "judged",
    "title": "Judged",
    "judges": [{"judge_id": "main", "type": "llm_probe", "model": "demo"}],
    "judge_runs": [{"judge_run_id": "main", "judge_id": "main", "repetitions": 1}],
}
PARIS = {"role": "assistant", "content": "Paris"}


def forecast(finished):
    """The table's rows as lists of cells, by model, and the lines beneath them."""
    lines = finished.result.outlines
    start = next(at for at, line in enumerate(lines) if "agentbench: dry run" in line)
    titles = lines[start + 1].split("  ")
    end = next(at for at, line in enumerate(lines) if line.startswith("nothing was run or paid"))
    rows = [line for line in lines[start + 2 : end] if not line.startswith(" ")]
    assert [title.strip() for title in titles if title.strip()][:4] == ["model", "runs", "reused", "to run"]
    return {row.split()[0]: row.split()[1:] for row in rows}, "\n".join(lines[start:])


@pytest.fixture
def paid(bench):
    """A project with three cases, and the endpoint that its model is at."""
    for case_id in ("one", "two", "six"):
        bench.case(case_id)
    with FaultEndpoint(answer=lambda _: PARIS) as endpoint:
        there = {"base_url": endpoint.base_url, "api_key_env": "none"}
        bench.models({"model_id": "local", "prices": PRICES, **there}, {"model_id": "other", **there})
        yield bench, endpoint


def test_without_a_history_the_costs_are_unknown(paid):
    bench, endpoint = paid
    finished = bench.run("--model=local", "--agentbench-dry-run", "-v")
    rows, text = forecast(finished)
    assert (finished.exit, finished.report, endpoint.requests) == (0, None, [])
    assert rows == {"local": ["3", "0", "3", "0", "-", "-", "$0.0000"]}
    assert "3 of 3 runs are of cases that never ran on this model: their tokens and costs are unknown" in text
    assert "SKIPPED (not run: this is a dry run)" in finished.text
    assert not (bench.path / "outputs/runs").exists()
    assert not (bench.path / "outputs/store.sqlite").exists()


@pytest.mark.slow
def test_new_cases_are_expected_to_cost_the_mean_of_stored_runs(paid):
    bench, endpoint = paid
    bench.run("--model=local", "-k", "one or two")
    finished = bench.run("--model=local", "--agentbench-dry-run", "--agentbench-repetitions=2")
    rows, text = forecast(finished)
    assert len(endpoint.requests) == 2
    assert rows == {"local": ["6", "2", "4", "0", "60", "$4.00", "$0.0000"]}
    assert "2 of 4 runs are of cases that never ran on this model: the model's mean is used" in text


@pytest.mark.slow
def test_each_case_is_expected_to_take_what_it_took(bench):
    bench.case("long", input=LONG)
    bench.case("short")

    def answer(body):
        last = body["messages"][-1]
        return PARIS | ({"tool_calls": [CALL]} if last["role"] == "user" and "(long)" in last["content"] else {})

    with FaultEndpoint(answer=answer) as endpoint:
        there = {"base_url": endpoint.base_url, "api_key_env": "none"}
        bench.models({"model_id": "local", "prices": PRICES, **there})
        bench.run("--model=local")
        assert len(endpoint.requests) == 3  # the long one asks twice
        again = ("--model=local", "--agentbench-dry-run", "--agentbench-no-reuse")
        rows = {case_id: forecast(bench.run(*again, "-k", case_id))[0]["local"] for case_id in ("long", "short")}
    assert rows["long"][-3:] == ["30", "$2.00", "$0.0000"]
    assert rows["short"][-3:] == ["15", "$1.00", "$0.0000"]


CALL = {"id": "1", "type": "function", "function": {"name": "list_files", "arguments": "{}"}}
LONG = {
    "messages": [{"role": "user", "content": "The capital of France? (long)"}],
    "context": {"llm_probe": {"tools": ["list_files"]}},
}


@pytest.mark.slow
def test_a_changed_prompt_is_to_run_and_a_changed_rubric_to_judge(bench):
    bench.write("cases/evaluation_profiles/judged.yaml", JUDGE)
    soft = {"soft_expectations": [{"text": "is friendly"}]}
    verdict = {"summary": "Seen.", "overall": {"score": 9, "evidence": ["x"]}}
    verdict["expectations"] = [{"kind": "soft", "index": 0, "met": 1, "evidence": "x"}]
    for case_id in ("a", "b", "c"):
        bench.case(case_id, expectations=soft)
        bench.write(
            f"cases/{case_id}/demo.yaml", {"schema_version": 1, "replies": [{"content": "Paris"}], "judge": verdict}
        )
    session = ("--model=demo", "--agentbench-evaluation-profile=judged")
    assert bench.run(*session).report["totals"]["passed"] == 3
    rows, _ = forecast(bench.run(*session, "--agentbench-dry-run"))
    assert rows["demo"][:4] == ["3", "3", "0", "0"]
    bench.case("a", expectations=soft, input={"messages": [{"role": "user", "content": "Where is the Louvre?"}]})
    bench.case("b", expectations={"soft_expectations": [{"text": "is brief"}]})
    rows, _ = forecast(bench.run(*session, "--agentbench-dry-run"))
    assert rows["demo"][:4] == ["3", "2", "1", "2"]
    assert rows["demo"][-2:] == ["$0.0000", "$0.0000"]


def test_models_have_a_row_each_and_workers_are_not_started(paid):
    bench, endpoint = paid
    bench.run("--model=local")
    finished = bench.run("--model=local", "--model=other", "--agentbench-dry-run", "-n2")
    rows, _ = forecast(finished)
    assert {name: row[:3] for name, row in rows.items()} == {"local": ["3", "3", "0"], "other": ["3", "0", "3"]}
    assert "created: 2/2 workers" not in finished.text
    assert len(endpoint.requests) == 3


def test_only_cases_take_part(bench):
    bench.agent(ECHO_TO_FILE)
    bench.case("one", folder="more/cases")
    bench.write("test_plain.py", "def test_plain():\n    open('ran.txt', 'w').close()\n")
    source = "import pytest\n\n@pytest.mark.agentbench('one')\ndef test_it(agentbench_run):\n    assert 0\n"
    bench.write("more/test_one.py", source)
    finished = bench.run("--agentbench-dry-run")
    finished.result.assert_outcomes(skipped=2, deselected=1)
    assert forecast(finished)[0]["agent"][0] == "2"
    assert not (bench.path / "ran.txt").exists()
    assert bench.lines("runs.txt") == []


def test_without_cases_nothing_runs(bench):
    bench.write("test_plain.py", "def test_plain():\n    open('ran.txt', 'w').close()\n")
    assert bench.run("--agentbench-dry-run").exit == 5
    assert not (bench.path / "ran.txt").exists()


@pytest.mark.slow
def test_an_own_agent_is_told_from_its_older_self(bench):
    bench.agent(ECHO_TO_FILE)
    bench.questions(3)
    bench.run()
    rows, _ = forecast(bench.run("--agentbench-dry-run"))
    assert rows["agent"][:3] == ["3", "3", "0"]
    bench.agent(ECHO_TO_FILE.replace("return case", "return 'It is ' + case"))
    rows, _ = forecast(bench.run("--agentbench-dry-run"))
    assert rows["agent"][:3] == ["3", "0", "3"]
    assert len(bench.lines("runs.txt")) == 3


def test_an_undecidable_case_is_an_error_of_the_dry_run(paid):
    bench, endpoint = paid
    bench.case("nothing", deterministic_checks=None)
    finished = bench.run("--model=local", "--agentbench-dry-run")
    assert finished.exit == 1
    assert "nothing decides this case" in finished.text
    assert forecast(finished)[0]["local"][0] == "3"
    assert endpoint.requests == []


def test_no_key_is_needed_to_know_the_price(bench):
    bench.case("one")
    bench.models({"model_id": "local", "base_url": "http://127.0.0.1:9/v1", "api_key_env": "NO_SUCH_KEY"})
    assert bench.run("--model=local").exit == 4
    assert bench.run("--model=local", "--agentbench-dry-run").exit == 0


@pytest.mark.slow
def test_the_last_report_and_the_last_failures_stay(bench):
    bench.agent()
    bench.case("good")
    bench.case("bad", deterministic_checks=[check("rome", kind="regex_match", pattern="Rome")])
    bench.spawn("--agentbench-json=kept.json")
    before = (bench.path / "kept.json").read_bytes()
    dry = bench.spawn("--lf", "--agentbench-json=kept.json", "--agentbench-dry-run")
    assert forecast(dry)[0]["<lambda>"][0] == "1"
    assert (bench.path / "kept.json").read_bytes() == before
    assert list(bench.spawn("--lf").outcomes) == ["bad[agent]"]
