"""What an answer or a provider echoes of the environment's keys reaches no report."""

from __future__ import annotations

import pytest
from support.bench import case_yaml, check
from support.fault_endpoint import FaultEndpoint

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


def test_a_key_variable_of_any_name_is_a_secret(bench, monkeypatch):
    monkeypatch.setenv("MY_ENDPOINT", SECRET)
    bench.case("one")
    echo = {"role": "assistant", "content": f"Authorization: {SECRET}"}
    with FaultEndpoint(answer=lambda body: echo) as endpoint:
        bench.models({"model_id": "local", "base_url": endpoint.base_url, "api_key_env": "MY_ENDPOINT"})
        done = bench.run("--model=local", "--junit-xml=junit.xml", "-rA")
    stored = "".join(path.read_text() for path in bench.path.rglob("*.json") if path.is_file())
    assert "[redacted]" in stored
    assert SECRET not in done.text + (bench.path / "junit.xml").read_text() + stored


JUDGED = {
    "schema_version": 1,
    "evaluation_profile_id": "judged",
    "title": "judged",
    "judges": [{"judge_id": "main", "type": "llm_probe", "model": "judge"}],
    "judge_runs": [{"judge_run_id": "main", "judge_id": "main"}],
}


@pytest.mark.slow
def test_a_judge_gets_no_half_of_a_key_where_its_prompt_is_cut(bench, monkeypatch):
    monkeypatch.setenv("MY_API_KEY", "0123456789" * 40)
    bench.write("conftest.py", CUT)
    bench.write("cases/evaluation_profiles/judged.yaml", JUDGED)
    asked = []

    def answer(body):
        asked.append(str(body))
        return {"role": "assistant", "content": "no verdict"}

    rubric = {"criteria": [{"name": "right", "what_good_looks_like": "Says Paris"}]}
    with FaultEndpoint(answer=answer) as endpoint:
        bench.models({"model_id": "judge", "base_url": endpoint.base_url, "api_key_env": "none"})
        bench.case("a-says-39900", rubric=rubric, deterministic_checks=None)
        bench.run("--agentbench-evaluation-profile=judged")
    assert "characters left out" in asked[0]
    assert "012345678901234" not in "".join(asked)


LEAVING = """
import os
import pytest

@pytest.fixture(scope="session")
def agentbench_runner():
    def agent(case, context):
        key = os.environ["MY_API_KEY"]
        write = context.workspace.write_text
        write("config.ini", f"[service]\\nkey = {key}\\n")
        write(f"folder-{key}/{key}.txt", "named after it")
        write("github.txt", "token: ghp_" + "a1" * 18)
        return f"written to {key}.txt"
    return agent
"""
HOOK = """
from pathlib import Path

def look(artifact, context):
    text = Path(context.workspace, "config.ini").read_text()
    print("I saw", text)
    return {"passed": False, "message": text, "outputs": {text: text}, "metadata": {"seen": text}}
"""


@pytest.mark.slow
def test_files_of_runs_and_output_of_hooks_and_verifiers_contain_no_key(bench, monkeypatch):
    monkeypatch.setenv("MY_API_KEY", SECRET)
    bench.write("conftest.py", LEAVING)
    bench.write("cases/one/hooks.py", HOOK)
    hook = {"check_id": "hook", "python_hook": {"path": "hooks.py", "callable_name": "look"}}
    holds = {"check_id": "holds", "declarative": {"kind": "file_contains", "path": "config.ini", "text": "no such"}}
    verify = {"command": ["cat", "config.ini", "github.txt"], "expected": {"exit_code": 1}}
    bench.case("one", deterministic_checks=[hook, holds], verify=verify)
    bench.profile("plain", sandbox="local")
    policy = {"allow_local_python_hooks": True, "network_access": "allow"}
    profile = {"schema_version": 1, "evaluation_profile_id": "plain", "title": "plain", "security_policy": policy}
    bench.write("cases/evaluation_profiles/plain.yaml", profile)
    done = bench.run("--agentbench-profile=plain", "--junit-xml=junit.xml", "-rA")
    assert done.outcomes == {"one[agent]": "failed"}
    assert "key = [redacted]" in done.text
    stored = [path for path in bench.path.rglob("*") if path.is_file() and "outputs" in path.parts]
    kept = [path.name for path in stored if "outputs/" in path.as_posix().partition(".artifacts/")[2]]
    assert any(name.endswith(".ini") for name in kept), stored
    for text in (done.text, str(done.report), (bench.path / "junit.xml").read_text()):
        assert SECRET not in text
    for path in stored:
        content = path.read_bytes()
        assert SECRET.encode() not in content + path.as_posix().encode(), path
        assert b"ghp_a1" not in content, path


PRINTING = """
import logging
import os
import pytest

@pytest.fixture(scope="session")
def agentbench_runner():
    def agent(case):
        print("printed", os.environ["MY_API_KEY"])
        logging.getLogger("agent").warning("logged %s", os.environ["MY_API_KEY"])
        return "Paris"
    return agent

@pytest.fixture(autouse=True)
def at_the_end():
    yield
    print("at the end", os.environ["MY_API_KEY"])
"""


def test_output_of_every_phase_contains_no_key(bench, monkeypatch):
    monkeypatch.setenv("MY_API_KEY", SECRET)
    bench.write("conftest.py", PRINTING)
    bench.case("one")
    done = bench.run("--junit-xml=junit.xml", "-o", "junit_logging=all", "-rA")
    assert done.outcomes == {"one[agent]": "passed"}
    junit = (bench.path / "junit.xml").read_text()
    assert "printed [redacted]" in junit
    assert "at the end [redacted]" in junit
    assert SECRET not in junit + done.text


CUT = """
import os
import pytest

@pytest.fixture(scope="session")
def agentbench_runner():
    def agent(case):
        *_, kind, before = case.case_id.split("-")
        text = "x" * int(before) + os.environ["MY_API_KEY"] + "y" * 90000
        if kind == "raises":
            raise RuntimeError(text)
        return text
    return agent
"""


@pytest.mark.slow
def test_a_key_at_the_place_where_a_text_is_cut_shows_no_half(bench, monkeypatch):
    monkeypatch.setenv("MY_API_KEY", "0123456789" * 40)
    bench.write("conftest.py", CUT)
    wrong = [check("json", kind="json_path_equals", json_path="$.a", value=1)]
    for before in (0, 50, 90, 300, 380, 1900, 3900):
        bench.case(f"a-says-{before}", deterministic_checks=wrong)
        bench.case(f"a-raises-{before}")
    done = bench.run("--junit-xml=junit.xml", "-rA", "-vv")
    assert set(done.outcomes.values()) == {"failed", "error"}
    assert "[redacted]" in done.text
    for text in (done.text, str(done.report), (bench.path / "junit.xml").read_text()):
        assert "012345678901234" not in text
