from __future__ import annotations

import asyncio
import os
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

import pytest_agentbench.checks.hooks as hooks
from pytest_agentbench.checks import CheckContext, run_checks
from pytest_agentbench.config import SecurityPolicy
from pytest_agentbench.metrics import METRICS
from pytest_agentbench.records import Case, Check, RunArtifact
from pytest_agentbench.workspaces import Workspace

ALLOWED = SecurityPolicy(allow_local_python_hooks=True)
SHARED_HOOK = Path(__file__).parents[3] / "shared/data/config/minimal/cases/example_case/hooks/custom_check.py"


@pytest.fixture
def run_hook(tmp_path):
    """Runs the function `check` of the given source as the hook of a case."""
    (tmp_path / "case").mkdir()
    (tmp_path / "workspace").mkdir()

    def run(source: str, policy=ALLOWED, **hook):
        (tmp_path / "case" / "hook.py").write_text(source)
        hook = {"callable_name": "check"} | (hook or {"path": "hook.py"})
        check = Check.model_validate({"check_id": "h", "python_hook": hook})
        case = Case(case_id="a", title="a", path=tmp_path / "case" / "test.yaml", runner={"type": "x"}, checks=(check,))
        artifact = RunArtifact.model_validate(
            {
                "run_id": "r", "case_id": "a", "runner_type": "x", "model": {}, "repetition": 1, "status": "success",
                "started_at": datetime.now(UTC), "duration_seconds": 1,
                "trace": [{"type": "final_output", "content": "42 \ud800", "sequence": 0, "at": 0}],
            }
        )  # fmt: skip
        context = CheckContext(case, artifact, Workspace(tmp_path / "workspace"), METRICS)
        (result,) = asyncio.run(run_checks(context, policy))
        return result

    return run


@pytest.mark.parametrize("hook", [{"path": "hook.py"}, {"import_path": "json"}])
def test_a_policy_without_hooks_skips_them_and_says_how_to_allow_them(run_hook, tmp_path, hook):
    source = f"open({str(tmp_path / 'ran')!r}, 'w')\ndef check(): return True"
    result = run_hook(source, policy=SecurityPolicy(), **hook)
    assert result.outcome == "skipped"
    assert "security_policy.allow_local_python_hooks: true" in result.message
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("source", "outcome"),
    [
        ("def check(): return True", "passed"),
        ("def check(artifact): return artifact.final_output.startswith('42')", "passed"),
        ("def check(artifact, context): return context.case.case_id == 'a' and context.workspace.is_dir()", "passed"),
        ("def check(*args): return len(args) == 2", "passed"),
        ("check = lambda artifact, extra=None: False", "failed"),
        ("def check(artifact): return type(artifact).__name__ != 'RunArtifact'", "failed"),
    ],
)
def test_a_hook_takes_up_to_two_parameters_and_returns_a_bool(run_hook, source, outcome):
    assert run_hook(source).outcome == outcome


def test_a_hook_may_return_message_metadata_and_outputs(run_hook):
    result = run_hook(
        "import pathlib\n"
        "def check():\n"
        "    print('looking')\n"
        "    return {'passed': False, 'message': 'too short', 'metadata': {'v': 1}, "
        "'outputs': {'p': pathlib.Path('x')}}"
    )
    assert (result.outcome, result.message, result.kind, result.dimensions) == (
        "failed",
        "too short",
        "python_hook",
        ("task",),
    )
    assert result.outputs == {"p": "PosixPath('x')", "metadata": {"v": 1}, "printed": "looking"}


def test_a_hook_may_return_an_object_with_those_attributes(run_hook):
    result = run_hook("class R:\n    passed = True\n    message = 'fine'\ndef check(): return R()")
    assert (result.outcome, result.message) == ("passed", "fine")


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("def check(): return 1", "TypeError: the hook returned int '1', expected a bool, a mapping or a result"),
        ("def check(): return None", "the hook returned None"),
        ("def check(): return {'passed': 'yes'}", "`passed` as str 'yes', expected True or False"),
        ("def check(): return {'ok': True}", "the keys ['ok'], expected some of"),
        ("async def check(): return True", "the hook returned coroutine"),
        ("def check():\n    return 1 / 0", "ZeroDivisionError: division by zero (hook.py:2)"),
        ("def check(a, b, c): return True", "TypeError"),
        ("def check(): raise SystemExit(0)", "SystemExit: 0"),
        ("import os\ndef check(): os._exit(0)", "the hook ended with exit code 0 and gave no verdict"),
        ("def check(): return {'passed': True, 'outputs': {'x': float('nan')}}", "ValueError"),
        ("def check(:", "SyntaxError"),
        ("from personal_agent_eval_missing.artifacts import RunArtifact", "ModuleNotFoundError: No module named"),
        ("x = 1", "has no callable 'check'"),
    ],
)
def test_whatever_is_no_verdict_is_an_error(run_hook, source, message):
    result = run_hook(source)
    assert result.outcome == "error"
    assert message in result.message


def test_printing_a_verdict_gives_none(run_hook):
    result = run_hook("import os\ndef check():\n    print('{\"passed\": true}', flush=True)\n    os._exit(0)")
    assert (result.outcome, result.outputs) == ("error", {"printed": '{"passed": true}'})


def test_a_hook_by_import_path(run_hook):
    assert run_hook("", import_path="operator", callable_name="truth").outcome == "passed"
    result = run_hook("", import_path="not_installed.checks")
    assert (result.outcome, "No module named 'not_installed'" in result.message) == ("error", True)


def test_a_hook_sees_modules_beside_it_but_no_keys_and_none_of_this_processs_path(run_hook, tmp_path, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    (tmp_path / "sitecustomize.py").write_text("raise SystemExit('planted')")
    (tmp_path / "case" / "beside.py").write_text("VALUE = 1")
    (tmp_path / "case" / "json.py").write_text("raise RuntimeError('hides the real one')")
    (tmp_path / "workspace" / "conftest.py").write_text("raise RuntimeError('planted')")
    result = run_hook(
        "import beside, json, os\n"
        "def check(): return {'passed': True, 'outputs': {'env': sorted(os.environ), 'cwd': os.listdir()}}"
    )
    assert result.outcome == "passed"
    assert "OPENAI_API_KEY" not in result.outputs["env"]
    assert "PYTHONPATH" not in result.outputs["env"]
    assert "test.yaml" not in result.outputs["cwd"]
    assert not (tmp_path / "case" / "__pycache__").exists()


@pytest.mark.slow
def test_a_hook_that_does_not_end_is_stopped_with_all_it_started(run_hook, tmp_path, monkeypatch):
    monkeypatch.setattr(hooks, "HOOK_SECONDS", 3.0)  # within which a busy machine starts the hook
    child = tmp_path / "child"
    began = time.monotonic()
    result = run_hook(
        "import pathlib, subprocess, time\n"
        "def check():\n"
        "    daemon = subprocess.Popen(['sleep', '60'], start_new_session=True)\n"
        f"    pathlib.Path({str(child)!r}).write_text(str(daemon.pid))\n"
        "    time.sleep(60)"
    )
    assert time.monotonic() - began < 30
    assert (result.outcome, "was stopped after 3 s" in result.message) == ("error", True)
    with pytest.raises(ProcessLookupError):
        os.kill(int(child.read_text()), 0)


def test_a_hook_cannot_take_all_memory(run_hook):
    result = run_hook("def check(): return len(bytearray(16 * 2**30)) > 0")
    assert (result.outcome, "MemoryError" in result.message) == ("error", True)


@pytest.mark.skipif(not SHARED_HOOK.exists(), reason="the conformance data is not here")
def test_a_hook_of_the_original_system_names_what_is_missing(run_hook):
    result = run_hook(SHARED_HOOK.read_text(), path="hook.py", callable_name="check_output")
    assert (result.outcome, "No module named 'personal_agent_eval'" in result.message) == ("error", True)
