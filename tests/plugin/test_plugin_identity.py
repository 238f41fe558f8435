"""What else decides whether a stored result counts: the agent's code, scripts, tools, and what plugins add."""

from __future__ import annotations

import sys

import pytest
from support.bench import ECHO_TO_FILE, check

FIXTURE = """
import pytest
from bench_agent import agent

@pytest.fixture(scope="session")
def agentbench_runner():
    return agent
"""
AGENT = "from bench_words import WORD\ndef agent(case): return WORD\n"
HOOKS = {
    "schema_version": 1,
    "evaluation_profile_id": "hooks",
    "title": "Hooks",
    "security_policy": {"allow_local_python_hooks": True},
}


@pytest.fixture(autouse=True)
def _no_bytecode(monkeypatch):
    """Python itself runs old bytecode for a file of the same size that was written in the same second."""
    monkeypatch.setattr(sys, "dont_write_bytecode", True)


@pytest.fixture
def project(bench, monkeypatch):
    """An agent of two modules, with two cases."""
    bench.pytester.syspathinsert()
    bench.agent(FIXTURE)
    bench.write("bench_agent.py", AGENT)
    bench.write("bench_words.py", "WORD = 'Paris'\n")
    bench.case("one")
    bench.case("two")
    return bench


def reused(finished):
    """Of each run, by its case: was it in the store, and was its verdict?"""
    rows = finished.runs.values()
    return {row["case_id"]: (row["reused"], row["evaluation_reused"]) for row in rows}


def again(bench, *args):
    """What a session reuses, all of whose runs have passed."""
    finished = bench.run(*args)
    assert set(finished.outcomes.values()) == {"passed"}, finished.text
    return reused(finished)


BOTH, NEITHER, RUN_ONLY = (True, True), (False, False), (True, False)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("bench_agent.py", AGENT + "# more\n"),
        ("bench_words.py", "WORD = 'Paris!'\n"),
        ("conftest.py", FIXTURE + "\nX = 1\n"),
    ],
)
def test_an_edit_of_the_agent_makes_its_runs_again(project, name, text):
    again(project)
    assert again(project) == {"one": BOTH, "two": BOTH}
    project.write(name, text)
    assert again(project) == {"one": NEITHER, "two": NEITHER}
    assert again(project) == {"one": BOTH, "two": BOTH}


def test_an_edit_of_anything_else_makes_nothing_again(project):
    names = ["test_other.py", "bench_other.py", "cases/conftest.py"]
    for name in names:
        project.write(name, "def test_it(): pass\n")
    again(project, "cases")
    for name in names:
        project.write(name, "def test_it(): assert True\n")
    assert again(project, "cases") == {"one": BOTH, "two": BOTH}


@pytest.mark.slow
def test_fixtures_that_the_agent_fixture_requests_are_part_of_its_identity(bench, monkeypatch):
    """The nearest fixture of the name; where one overrides another, both."""
    bench.agent(
        "import os, pytest\n"
        "@pytest.fixture(scope='session')\ndef word(): return os.environ['WORD']\n"
        "@pytest.fixture(scope='session')\ndef agentbench_runner(word):\n    return lambda case: word\n"
    )
    bench.agent(
        "import pytest\n"
        "@pytest.fixture(scope='session')\ndef agentbench_runner(agentbench_runner):\n"
        "    agent = lambda case: agentbench_runner(case)\n    agent.model_id = 'inner'\n    return agent\n",
        folder="cases",
    )
    bench.case("one")
    monkeypatch.setenv("WORD", "Paris")
    again(bench)
    assert again(bench) == {"one": BOTH}
    conftest = bench.path / "conftest.py"
    bench.write("conftest.py", conftest.read_text() + "# another comment\n")
    assert again(bench) == {"one": NEITHER}
    monkeypatch.setenv("WORD", "Paris!")
    assert again(bench) == {"one": NEITHER}
    assert again(bench) == {"one": BOTH}


@pytest.mark.slow
def test_a_fixture_counts_whose_value_tells_nothing(bench):
    """There is no looking into an iterator: the function that made it is all there is."""
    root = (
        "import itertools, pytest\n@pytest.fixture(scope='session')\ndef words(): return itertools.cycle(['Paris'])\n"
    )
    bench.agent(root)
    bench.agent(
        "import pytest\n"
        "@pytest.fixture(scope='session')\ndef agentbench_runner(words):\n    return lambda case: next(words)\n",
        folder="cases",
    )
    bench.case("one")
    again(bench)
    assert again(bench) == {"one": BOTH}
    bench.agent(root.replace("Paris", "Paris!"))
    assert again(bench) == {"one": NEITHER}


def test_fixtures_that_cases_do_not_ask_for_do_not_count(bench):
    """A session over part of the tests knows the same agents."""
    bench.agent(
        "import pytest\n"
        "@pytest.fixture(scope='session')\ndef word(): return 'Paris'\n"
        "@pytest.fixture(scope='session')\ndef agentbench_runner(word):\n    return lambda case: word\n"
    )
    bench.write(
        "tests/test_others.py",
        "import pytest\n"
        "@pytest.fixture(scope='session')\ndef word(): return 'Paris'\n"
        "@pytest.fixture(scope='session')\ndef other(word): return word\n"
        "def test_it(other): pass\n",
    )
    bench.case("one", folder="zz_cases")
    again(bench)
    assert again(bench, "zz_cases") == {"one": BOTH}


@pytest.mark.parametrize("scope", ["session", "module", "function"])
def test_agents_of_different_parameters_are_distinguished(bench, scope):
    bench.agent(
        "import pytest\n"
        f"@pytest.fixture(scope='{scope}', params=['Paris', 'Paris.'])\ndef word(request): return request.param\n"
        f"@pytest.fixture(scope='{scope}')\ndef agentbench_runner(word):\n"
        "    def agent(case):\n"
        "        with open('runs.txt', 'a') as file: file.write(word + '\\n')\n"
        "        return 'Paris'\n"
        "    return agent\n"
    )
    bench.case("one")
    bench.write(
        "test_it.py",
        "import pytest\n@pytest.mark.agentbench('one')\ndef test_it(agentbench_run, word):\n    assert word\n",
    )
    assert again(bench, "test_it.py") == {"one": NEITHER}
    assert bench.lines("runs.txt") == ["Paris", "Paris."]
    bench.run("test_it.py")
    assert bench.lines("runs.txt") == ["Paris", "Paris."]


@pytest.mark.slow
def test_a_fingerprint_names_what_the_code_cannot_show(bench):
    agent = (
        "import pytest\nfrom pathlib import Path\n"
        "class Agent:\n"
        "    @property\n    def fingerprint(self): return Path('version.txt').read_text()\n"
        "    def __call__(self, case): return 'Paris'\n"
        "@pytest.fixture(scope='session')\ndef agentbench_runner(): return Agent()\n"
    )
    bench.write("version.txt", "1")
    bench.agent(agent)
    bench.case("one")
    again(bench)
    bench.agent(agent + "# it stands for the code, too\n")
    assert again(bench) == {"one": BOTH}
    bench.write("version.txt", "2")
    assert again(bench) == {"one": NEITHER}


@pytest.mark.parametrize("value", ["3", "''", "b'1'"])
def test_a_fingerprint_is_a_text(bench, value):
    bench.agent(
        "import pytest\n"
        "@pytest.fixture(scope='session')\ndef agentbench_runner():\n"
        f"    def agent(case): return 'Paris'\n    agent.fingerprint = {value}\n    return agent\n"
    )
    bench.case("one")
    finished = bench.run()
    assert finished.outcomes == {"one[agent]": "error"}
    assert "fingerprint: found" in finished.text
    assert "expected a text that names the agent's version" in finished.text


def test_an_agent_without_source_is_never_reused_and_the_session_warns_once(bench):
    bench.agent(
        "import pytest\n"
        "@pytest.fixture(scope='session')\ndef agentbench_runner():\n"
        "    return eval('lambda case: \"Paris\"', {'__name__': 'made_up'})\n"
    )
    bench.case("one")
    bench.case("two")
    again(bench)
    finished = bench.run()
    assert reused(finished) == {"one": NEITHER, "two": NEITHER}
    assert finished.text.count("the agent <lambda> is never reused from the store: <lambda> has no source file") == 1
    assert "`fingerprint`" in finished.text


def test_a_module_that_changes_under_a_running_session_is_not_trusted(bench):
    """The second run imports what nobody has read."""
    bench.pytester.syspathinsert()
    bench.write("bench_late.py", "WORD = 'Paris'\n")
    bench.agent(
        "import pytest\n"
        "@pytest.fixture(scope='session')\ndef agentbench_runner():\n"
        "    def agent(case):\n"
        "        if case.case_id == 'one':\n"
        "            with open('bench_late.py', 'a') as file: file.write('MORE = 1\\n')\n"
        "        from bench_late import WORD\n        return WORD\n"
        "    return agent\n"
    )
    bench.case("one")
    bench.case("two")
    finished = bench.run("--agentbench-concurrency", "1")
    assert "bench_late.py was changed while the session ran" in finished.text
    bench.write("bench_late.py", "WORD = 'Paris'\nMORE = 1\n")
    assert reused(bench.run("--agentbench-concurrency", "1", "-k", "two")) == {"two": NEITHER}


@pytest.mark.slow
def test_workers_find_what_one_process_made(project):
    again(project)
    assert again(project, "-n", "2") == {"one": BOTH, "two": BOTH}
    found = project.spawn()
    assert reused(found) == {"one": BOTH, "two": BOTH}


@pytest.mark.slow
def test_a_scripted_model_reuses_until_its_own_cases_script_changes(bench):
    bench.case("one")
    bench.case("two")
    script = {"schema_version": 1, "replies": [{"content": "Paris"}]}
    bench.write("cases/one/demo.yaml", script)
    bench.write("cases/two/demo.yaml", script)
    again(bench, "--model", "demo")
    bench.write("cases/two/demo.yaml", {**script, "replies": [{"content": "Paris!"}]})
    assert again(bench, "--model", "demo") == {"one": BOTH, "two": NEITHER}
    bench.write("cases/two/demo.yaml", {**script, "replies": [{"content": "Paris!"}], "judge": {"overall": 3}})
    assert again(bench, "--model", "demo") == {"one": BOTH, "two": BOTH}


@pytest.mark.slow
def test_a_row_has_the_script_of_its_own_id(bench):
    bench.questions(2)
    bench.write("cases/many.demo.yaml", {"schema_version": 1, "answers": {"q0": "Paris"}, "default": "Paris"})
    again(bench, "--model", "demo")
    script = {"schema_version": 1, "answers": {"q0": "Paris", "q1": "Paris"}, "default": "x"}
    bench.write("cases/many.demo.yaml", script)
    assert again(bench, "--model", "demo") == {"cases/many.q0": BOTH, "cases/many.q1": BOTH}
    bench.write("cases/many.demo.yaml", {**script, "answers": {"q0": "Paris", "q1": {"content": " Paris"}}})
    assert again(bench, "--model", "demo") == {"cases/many.q0": BOTH, "cases/many.q1": NEITHER}


JUDGED = {
    "schema_version": 1,
    "evaluation_profile_id": "judged",
    "title": "Judged",
    "judges": [{"judge_id": "main", "type": "llm_probe", "model": "demo"}],
    "judge_runs": [{"judge_run_id": "main", "judge_id": "main", "repetitions": 1}],
}


@pytest.mark.slow
def test_a_scripted_judge_judges_again_once_its_script_changes(project):
    rubric = {"criteria": [{"name": "right", "what_good_looks_like": "Says Paris"}]}
    args = ("--agentbench-evaluation-profile", "judged")
    project.write("cases/evaluation_profiles/judged.yaml", JUDGED)
    for case_id in ("one", "two"):
        project.case(case_id, rubric=rubric)
        project.write(f"cases/{case_id}/demo.yaml", {"schema_version": 1, "judge": {"overall": 9}})
    again(project, *args)
    assert again(project, *args) == {"one": BOTH, "two": BOTH}
    project.write("cases/two/demo.yaml", {"schema_version": 1, "judge": {"overall": 8}})
    assert again(project, *args) == {"one": BOTH, "two": RUN_ONLY}
    assert again(project, *args, "--agentbench-rejudge") == {"one": RUN_ONLY, "two": RUN_ONLY}


@pytest.mark.slow
def test_a_hook_is_run_again_once_it_or_what_it_imports_changes(project):
    hook = {"check_id": "mine", "python_hook": {"path": "hook.py", "callable_name": "passed"}}
    project.write("cases/evaluation_profiles/hooks.yaml", HOOKS)
    project.case("one", deterministic_checks=[hook])
    source = "from bench_beside import GOOD\ndef passed(artifact): return GOOD\n"
    project.write("cases/one/hook.py", source)
    project.write("cases/one/bench_beside.py", "GOOD = True\n")
    args = ("--agentbench-evaluation-profile", "hooks", "-k", "one")
    again(project, *args)
    assert again(project, *args) == {"one": BOTH}
    project.write("cases/one/hook.py", source + "# more\n")
    assert again(project, *args) == {"one": RUN_ONLY}
    project.write("cases/one/bench_beside.py", "GOOD = bool(1)\n")
    assert again(project, *args) == {"one": RUN_ONLY}
    assert again(project, *args) == {"one": BOTH}


@pytest.mark.slow
def test_a_plugins_check_or_metric_is_applied_again_once_its_code_changes(project):
    added = """
from pytest_agentbench import Verdict
asked = [0]
def is_word(spec, context):
    asked[0] += 1
    return Verdict("passed", "It is.")
def same(ground_truth, prediction): return 1.0
def pytest_agentbench_checks(): return {"is_word": is_word}
def pytest_agentbench_metrics(): return {"same": same}
"""
    project.write("bench_plugin.py", added)
    project.write("conftest.py", FIXTURE + "\npytest_plugins = ['bench_plugin']\n")
    project.case("one", deterministic_checks=[check("word", kind="is_word")])
    project.case("two", metrics=[{"name": "same", "threshold": 1.0}], reference="Paris")
    project.case("three")
    again(project)
    assert again(project) == {"one": BOTH, "two": BOTH, "three": BOTH}
    project.write("bench_plugin.py", added + "X = 1\n")
    assert again(project) == {"one": RUN_ONLY, "two": RUN_ONLY, "three": BOTH}
    assert again(project) == {"one": BOTH, "two": BOTH, "three": BOTH}


@pytest.mark.slow
def test_a_plugins_runner_and_its_tools_are_part_of_the_run(bench):
    added = """
from pytest_agentbench import SearchResult, Tool

async def run(case, context): return "Paris"
async def tell(arguments, context): return "noon"
def pytest_agentbench_runners(): return {"mine": run, "other": run}
def pytest_agentbench_tools():
    return {"clock": Tool("clock", "Tells the time.", {"type": "object"}, tell)}
"""
    bench.agent(added)
    bench.models({"model_id": "m", "base_url": "http://127.0.0.1:9/v1", "api_key_env": "none"})
    bench.case("one", runner={"type": "mine"})
    tools = {"context": {"llm_probe": {"tools": ["clock", "read_file"]}}}
    bench.case("two", runner={"type": "mine"}, input={"messages": [{"role": "user", "content": "?"}], **tools})
    again(bench, "--model", "m")
    assert again(bench, "--model", "m") == {"one": BOTH, "two": BOTH}
    bench.agent(added.replace("Tells the time.", "Tells the hour."))
    assert again(bench, "--model", "m") == {"one": NEITHER, "two": NEITHER}


@pytest.mark.slow
def test_a_search_backend_is_part_of_runs_that_may_search(project, monkeypatch):
    context = {"context": {"llm_probe": {"tools": ["web_search"]}}}
    project.case("two", input={"messages": [{"role": "user", "content": "?"}], **context})
    monkeypatch.setenv("AGENTBENCH_SEARXNG_URL", "http://127.0.0.1:9/a")
    again(project)
    assert again(project) == {"one": BOTH, "two": BOTH}
    monkeypatch.setenv("AGENTBENCH_SEARXNG_URL", "http://127.0.0.1:9/b")
    assert again(project) == {"one": BOTH, "two": NEITHER}
    monkeypatch.delenv("AGENTBENCH_SEARXNG_URL")
    monkeypatch.setenv("BRAVE_API_KEY", "one-key-of-many")
    assert again(project) == {"one": BOTH, "two": NEITHER}
    monkeypatch.setenv("BRAVE_API_KEY", "another-key-of-many")
    assert again(project) == {"one": BOTH, "two": BOTH}


@pytest.mark.slow
def test_another_rootdir_of_pytest_does_not_change_the_identity(bench):
    """Without an ini file it is the common parent of all that the command line names, options' values included."""
    bench.path.joinpath("conftest.py").write_text(ECHO_TO_FILE)
    bench.case("one")
    elsewhere = bench.path.parent / f"{bench.path.name}-elsewhere"
    elsewhere.mkdir()
    for output in ("--agentbench-output=" + str(elsewhere), "--agentbench-output " + str(elsewhere)):
        finished = bench.run(*output.split())
    assert "1 passed, 1 reused" in finished.text
    assert bench.path.joinpath("runs.txt").read_text() == "one\n"
