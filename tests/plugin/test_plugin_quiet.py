"""A session without a case pays nothing and sees nothing."""

from __future__ import annotations

import gc
import sys

import pytest
from support.bench import ECHO

from pytest_agentbench.collection import start
from pytest_agentbench.errors import ConfigError

LOOK = """
import sys

def pytest_unconfigure(config):
    heavy = ("pydantic", "openai", "yaml", "jsonschema", "rich", "asyncio", "pytest_agentbench.records",
             "pytest_agentbench.config.base", "pytest_agentbench.collection", "pytest_agentbench.engine")
    print("loaded:", [name for name in heavy if name in sys.modules])
"""


@pytest.mark.slow
def test_a_session_without_cases_loads_and_writes_nothing(bench):
    bench.write("conftest.py", LOOK)
    bench.write("test_plain.py", "def test_plain(): pass\n")
    bench.write("data.json", '{"questions": 1}')
    bench.write("other/test.yaml", "steps:\n  - run: make\n")
    bench.write("settings.jsonl", '{"a": 1}\n')
    finished = bench.spawn("-s")
    assert finished.exit == 0
    assert "loaded: []" in finished.text
    assert not (bench.path / "outputs").exists()
    assert "agentbench" not in finished.text.partition("collected")[2]


ASKED = """
def pytest_unconfigure(config):
    import sys
    names = [name for name in sys.modules if name.startswith("pytest_agentbench.models.")]
    print("loaded:", names, [name for name in ("httpx2", "openai", "starlette") if name in sys.modules])
"""


@pytest.mark.slow
def test_a_session_that_asks_no_model_imports_no_client(bench):
    bench.write("conftest.py", ECHO + ASKED)
    bench.case("a")
    finished = bench.spawn("-s")
    assert finished.exit == 0
    assert "loaded: [] []" in finished.text


@pytest.mark.slow
def test_a_session_on_scripts_imports_no_http_client(bench):
    bench.write("conftest.py", ASKED)
    bench.case("a")
    bench.write("cases/a/demo.yaml", "schema_version: 1\nreplies: [{content: Paris}]\n")
    finished = bench.spawn("-s", "--model", "demo")
    assert finished.exit == 0
    assert "] []" in finished.text


def test_the_plugin_is_imported_without_its_rooms(bench):
    code = "import sys; import pytest_agentbench.plugin; print(sorted(m for m in sys.modules if 'agentbench' in m))"
    loaded = bench.pytester.run(sys.executable, "-c", code).stdout.str()
    names = [
        "collecting",
        "config",
        "config.folders",
        "errors",
        "fixtures",
        "hookspecs",
        "options",
        "plugin",
        "reports",
    ]
    names += ["reports.failure_lists", "reports.named_files", "session", "terminal_text"]
    assert loaded.strip() == str(["pytest_agentbench", *(f"pytest_agentbench.{name}" for name in names)])


def test_help_names_every_option(bench):
    text = bench.run("--help").text
    for option in ("model", "profile", "suite", "fail-under", "max-cost", "strict", "output", "json", "metric"):
        assert f"--agentbench-{option}" in text
    assert "agentbench_configs" in text


def test_fixtures_are_listed_with_what_they_are(bench):
    text = bench.run("--fixtures").text
    for name in ("agentbench_runner", "agentbench_run", "agentbench_case", "agentbench_model", "agentbench_workspace"):
        assert f"{name}" in text


@pytest.fixture
def usual_threshold():
    """Give the garbage collector Python's own threshold, and return it."""
    before, usual = gc.get_threshold(), (700, 10, 10)
    gc.set_threshold(*usual)
    yield usual
    gc.set_threshold(*before)


def test_a_session_searches_for_garbage_less_often_until_it_ends(bench, monkeypatch, usual_threshold):
    thresholds = []
    build = start.SessionBuilder.build
    monkeypatch.setattr(
        start.SessionBuilder, "build", lambda self: (thresholds.append(gc.get_threshold()), build(self))
    )
    bench.write("conftest.py", ECHO)
    bench.case("a")
    assert bench.run().exit == 0
    assert thresholds[0][0] > usual_threshold[0]
    assert gc.get_threshold() == usual_threshold


def test_a_configuration_error_at_the_start_does_not_name_another_option(bench, monkeypatch):
    builders = []

    def refuse(builder, *args):
        builders.append(builder)
        raise ConfigError("the sandbox cannot be imported")

    monkeypatch.setattr(start.SessionBuilder, "_warn", refuse)
    bench.write("conftest.py", ECHO)
    bench.case("a")
    text = bench.run().text
    assert "the sandbox cannot be imported" in text
    assert "--agentbench-otel" not in text
    assert builders[0].ahead.engine.loop.is_closed()
