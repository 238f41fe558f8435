"""What an answer or a provider echoes of the environment's keys reaches no report."""

from __future__ import annotations

from support.fault_endpoint import FaultEndpoint

from conftest import case_yaml

SECRET = "zebra-crossing-4711"

LEAKY = """
import os
import pytest

@pytest.fixture(scope="session")
def agentbench_runner():
    def agent(case):
        if case.case_id == "raises":
            raise RuntimeError("cannot use " + os.environ["MY_API_KEY"])
        return "my key is " + os.environ["MY_API_KEY"]
    return agent
"""


def test_an_agents_answer_and_exception_show_no_key(bench, monkeypatch):
    monkeypatch.setenv("MY_API_KEY", SECRET)
    bench.write("conftest.py", LEAKY)
    for case_id in ("answers", "raises"):
        bench.write(f"cases/{case_id}/test.yaml", case_yaml(case_id))
    done = bench.run("--junit-xml=junit.xml", "-rA")
    assert done.outcomes == {"answers[agent]": "failed", "raises[agent]": "error"}
    assert "[redacted]" in done.text
    written = "".join(path.read_text() for path in bench.path.rglob("*") if path.suffix in (".json", ".xml", ".md"))
    assert SECRET not in done.text + written


def test_a_provider_that_echoes_the_key_shows_none(bench, monkeypatch):
    monkeypatch.setenv("MY_API_KEY", SECRET)
    bench.write("cases/one/test.yaml", case_yaml("one"))
    echo = {"role": "assistant", "content": f"Authorization: {SECRET}"}
    with FaultEndpoint(answer=lambda body: echo) as endpoint:
        bench.models({"model_id": "local", "base_url": endpoint.base_url, "api_key_env": "MY_API_KEY"})
        done = bench.run("--model=local", "--junit-xml=junit.xml")
    assert done.outcomes == {"one[local]": "failed"}
    assert SECRET not in done.text + (bench.path / "junit.xml").read_text() + str(done.report)
