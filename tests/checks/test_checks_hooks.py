from __future__ import annotations

import asyncio
import functools
import os
import socket
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest
from support.docker_here import bubblewrap_lacks, needs_bubblewrap
from support.outer_bound import bounded
from support.processes import running
from support.small_disk import small_disk

import pytest_agentbench.checks.hooks as hooks
from pytest_agentbench.checks.base import CheckContext
from pytest_agentbench.checks.hooks import require_hooks
from pytest_agentbench.checks.run import run_checks
from pytest_agentbench.config.profiles import SecurityPolicy
from pytest_agentbench.errors import UnavailableError
from pytest_agentbench.metrics.registry import METRICS
from pytest_agentbench.records.case import Case
from pytest_agentbench.records.check_specs import Check
from pytest_agentbench.records.evaluation import CheckResult
from pytest_agentbench.records.run import RunArtifact
from pytest_agentbench.workspaces.sandboxes.bubblewrap import bubblewrap_problem
from pytest_agentbench.workspaces.workspace import Workspace

ALLOWED = SecurityPolicy(allow_local_python_hooks=True)
WITH_NETWORK = SecurityPolicy(allow_local_python_hooks=True, network_access="allow")
NAP = f"999.{os.getpid():07}"
RUNS_HERE = ALLOWED if bubblewrap_lacks() is None else WITH_NETWORK
SHARED_HOOK = Path(__file__).parents[3] / "shared/data/config/minimal/cases/example_case/hooks/custom_check.py"


def checked(folder: Path, source: str, policy: SecurityPolicy = RUNS_HERE, **hook: str) -> CheckResult:
    """The result of the function `check` of the given source as the hook of the case in `folder`."""
    (folder / "case" / "hook.py").write_text(source)
    described = {"callable_name": "check"} | (hook or {"path": "hook.py"})
    check = Check.model_validate({"check_id": "h", "python_hook": described})
    case = Case(case_id="a", title="a", path=folder / "case" / "test.yaml", runner={"type": "x"}, checks=(check,))
    artifact = RunArtifact.model_validate(
        {
            "run_id": "r", "case_id": "a", "runner_type": "x", "model": {}, "repetition": 1, "status": "success",
            "started_at": datetime.now(UTC), "duration_seconds": 1,
            "trace": [{"type": "final_output", "content": "42 \ud800", "sequence": 0, "at": 0}],
        }
    )  # fmt: skip
    context = CheckContext(case, artifact, Workspace(folder / "workspace"), METRICS)
    (result,) = asyncio.run(run_checks(context, policy))
    return result


@pytest.fixture
def run_hook(tmp_path):
    """`checked`, of a case of the test's own."""
    (tmp_path / "case").mkdir()
    (tmp_path / "workspace").mkdir()
    return functools.partial(checked, tmp_path)


@pytest.mark.parametrize("hook", [{"path": "hook.py"}, {"import_path": "json"}])
def test_a_policy_without_hooks_skips_them_and_names_the_setting(run_hook, tmp_path, hook):
    source = f"open({str(tmp_path / 'ran')!r}, 'w')\ndef check(): return True"
    result = run_hook(source, policy=SecurityPolicy(), **hook)
    assert result.outcome == "skipped"
    assert "security_policy.allow_local_python_hooks: true" in result.message
    assert not (tmp_path / "ran").exists()


@pytest.mark.slow
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
def test_a_result_that_is_not_a_verdict_is_an_error(run_hook, source, message):
    result = run_hook(source)
    assert result.outcome == "error"
    assert message in result.message


def test_printing_a_verdict_gives_none(run_hook):
    result = run_hook("import os\ndef check():\n    print('{\"passed\": true}', flush=True)\n    os._exit(0)")
    assert (result.outcome, result.outputs) == ("error", {"printed": '{"passed": true}'})


@pytest.mark.slow
def test_a_hook_by_import_path(run_hook):
    assert run_hook("", import_path="operator", callable_name="truth").outcome == "passed"
    result = run_hook("", import_path="not_installed.checks")
    assert (result.outcome, "No module named 'not_installed'" in result.message) == ("error", True)


@pytest.mark.parametrize("name", ["project_checks.py", "project_checks/__init__.py", "project_checks/of_text.py"])
def test_a_hook_by_import_path_is_found_where_this_process_finds_it(run_hook, tmp_path, monkeypatch, name):
    file = tmp_path / "project" / name
    file.parent.mkdir(parents=True)
    file.write_text("def check(): return True")
    monkeypatch.syspath_prepend(tmp_path / "project")
    import_path = name.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    result = run_hook("", import_path=import_path, callable_name="check")
    assert result.outcome == "passed", result


def test_a_hook_sees_modules_next_to_it_but_no_keys_and_no_path_of_this_process(run_hook, tmp_path, monkeypatch):
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
@pytest.mark.parametrize("bubblewrap", [pytest.param(True, marks=needs_bubblewrap), False])
def test_a_hook_that_does_not_end_is_stopped_with_all_it_started(run_hook, monkeypatch, no_bubblewrap, bubblewrap):
    if not bubblewrap:
        no_bubblewrap()
    monkeypatch.setattr(hooks, "HOOK_SECONDS", 3.0)  # within which a busy machine starts the hook
    began = time.monotonic()
    result = run_hook(
        "import subprocess, time\n"
        "def check():\n"
        f"    subprocess.Popen(['sleep', '{NAP}'], start_new_session=True)\n"
        "    print('begun', flush=True)\n"
        "    time.sleep(60)",
        policy=WITH_NETWORK,
    )
    assert time.monotonic() - began < 30
    assert (result.outcome, result.message) == ("error", "the hook was stopped after 3 s and gave no verdict")
    assert result.outputs == {"printed": "begun"}
    assert not running(NAP)


def test_a_hook_cannot_take_all_memory(run_hook):
    result = run_hook("def check(): return len(bytearray(16 * 2**30)) > 0")
    assert (result.outcome, "MemoryError" in result.message) == ("error", True)


@needs_bubblewrap
@pytest.mark.parametrize(
    ("source", "message"),
    [
        (
            "import os\ndef check():\n    child = os.fork()\n    return not child or os.waitpid(child, 0) is not None",
            "gave more than one verdict",
        ),
        ("def check(): return {'passed': True, 'message': 'x' * 2_000_000}", "gave a verdict that is too long"),
        (
            "import os, sys\ndef check():\n    os.write(int(sys.argv[1]), b'{\"passed\": true}')",
            "gave more than one verdict",
        ),
        ("import ctypes\ndef check(): ctypes.string_at(0)", "ended with exit code 139 and gave no verdict"),
    ],
    ids=["fork", "long", "early", "crash"],
)
def test_a_hook_that_misbehaves_is_an_error_with_the_reason(run_hook, source, message):
    result = run_hook(source)
    assert (result.outcome, message in result.message) == ("error", True), result.message


@needs_bubblewrap
@pytest.mark.slow
@pytest.mark.parametrize(
    ("source", "message"),
    [
        (
            "def check():\n    for _ in range(1024): print('x' * 2**20)\n    return True",
            "because it printed without end",
        ),
        (
            "import os, time\ndef check():\n    [os.fork() or time.sleep(60) for _ in range(64)]\n    time.sleep(60)",
            "because it had more than 64 processes and threads",
        ),
        (
            "import os\ndef check():\n    while True:\n        try: os.fork()\n        except OSError: pass",
            "was stopped",
        ),
        (
            "import os\ndef check():\n    for n in range(9):\n"
            "        with open(f'{n}', 'wb') as f: f.write(bytes(1 << 27))",
            "because it wrote more than",
        ),
    ],
    ids=["1 GB", "processes", "fork bomb", "disk"],
)
def test_a_hook_that_uses_all_resources_is_stopped(run_hook, tmp_path, monkeypatch, source, message):
    with small_disk(tmp_path / "disk", "900m"):
        monkeypatch.setenv("TMPDIR", str(tmp_path / "disk"))
        result = bounded(checked, tmp_path, source)
    assert (result.outcome, message in result.message) == ("error", True), result.message


RIGHTS = """
import os
def check():
    status = open("/proc/self/status").read()
    rights = int(status.partition("CapEff:")[2].split()[0], 16)
    ours = [place for place in ("/proc/sys/kernel/core_pattern", "/proc/sys/vm/swappiness", "/etc/passwd", "/usr/bin")
            if os.access(place, os.W_OK)]
    return {"passed": os.getuid() != 0 and rights & ~4 == 0 and not ours,  # 4: to read what it sees
            "outputs": {"uid": os.getuid(), "rights": rights, "ours": ours}}
"""


@needs_bubblewrap
def test_a_hook_is_no_root_and_cannot_change_the_kernels_settings(run_hook):
    result = run_hook(RIGHTS)
    assert result.outcome == "passed", result


@pytest.mark.slow
@needs_bubblewrap
def test_a_hook_reads_its_case_and_the_workspace_of_any_owner(run_hook, tmp_path):
    for file in (tmp_path / "case" / "expected.txt", tmp_path / "workspace" / "left.txt"):
        file.write_text("42")
        file.chmod(0o600)
    result = run_hook(
        "def check(artifact, context):\n"
        "    files = [context.case_folder / 'expected.txt', context.workspace / 'left.txt']\n"
        "    return all(file.read_text() == '42' for file in files)"
    )
    assert result.outcome == "passed", result


def test_threads_that_a_hook_leaves_keep_nobody_waiting(run_hook):
    result = run_hook(
        "import threading, time\n"
        "def check():\n"
        "    threading.Thread(target=time.sleep, args=(60,)).start()\n"
        "    return True"
    )
    assert result.outcome == "passed"


CONNECTS = """
import socket
def check():
    try:
        socket.create_connection(("127.0.0.1", {port}), 5).send(b"out")
    except OSError as error:
        return {{"passed": False, "message": str(error)}}
    return True
"""


@pytest.mark.slow
@needs_bubblewrap
def test_a_hook_reaches_a_listener_only_where_the_policy_allows_the_network(run_hook):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(0)
        source = CONNECTS.format(port=listener.getsockname()[1])
        denied = run_hook(source)
        assert denied.outcome == "failed"
        assert "Connection refused" in denied.message or "unreachable" in denied.message
        with pytest.raises(BlockingIOError):
            listener.accept()
        assert run_hook(source, policy=WITH_NETWORK).outcome == "passed"
        listener.settimeout(5)
        with listener.accept()[0] as connection:
            assert connection.recv(3) == b"out"


@pytest.mark.slow
@needs_bubblewrap
@pytest.mark.parametrize("policy", [ALLOWED, WITH_NETWORK], ids=["no-network", "network"])
def test_a_hook_sees_its_case_and_the_workspace_and_writes_neither(run_hook, tmp_path, policy):
    (tmp_path / "elsewhere.txt").write_text("of the host")
    (tmp_path / "workspace" / "left.txt").write_text("by the agent")
    result = run_hook(
        "import pathlib\n"
        "def check(artifact, context):\n"
        "    (pathlib.Path.cwd() / 'own').write_text('may be written')\n"
        "    tried = []\n"
        "    for folder in (context.workspace, context.case_folder, pathlib.Path('/etc'), pathlib.Path('/usr')):\n"
        "        try:\n"
        "            (folder / 'x').write_text('')\n"
        "        except OSError as error:\n"
        "            tried.append(error.errno)\n"
        f"    there = pathlib.Path({str(tmp_path / 'elsewhere.txt')!r}).exists()\n"
        "    return {'passed': not there and len(tried) == 4,\n"
        "            'outputs': {'left': (context.workspace / 'left.txt').read_text(), 'tried': tried}}",
        policy=policy,
    )
    assert result.outcome == "passed", result
    assert result.outputs["left"] == "by the agent"


COMPARES = """
def check(artifact, context):
    expected = (context.case_folder / "expected.txt").read_text()
    own = (context.workspace / "folder" / "own").read_text()
    answers = [context.workspace / folder / f"answer{number}.txt" for folder in (".", "locked") for number in range(3)]
    return {"passed": any(each.exists() and each.read_text() == expected for each in answers), "message": own}
"""


def test_an_answer_that_is_a_link_to_the_expected_file_does_not_count(run_hook, tmp_path):
    (tmp_path / "case" / "expected.txt").write_text("42")
    workspace = tmp_path / "workspace"
    (workspace / "out").symlink_to(tmp_path / "case")
    (workspace / "folder").mkdir()
    (workspace / "kept").write_text("kept")
    (workspace / "folder" / "own").symlink_to("../kept")
    (workspace / "locked").mkdir()
    targets = [f"{tmp_path}/case/expected.txt", "out/expected.txt", "folder/../out/expected.txt"]
    for folder in (workspace, workspace / "locked"):
        for number, target in enumerate(targets):
            (folder / f"answer{number}.txt").symlink_to(target)
    (workspace / "locked").chmod(0o300)
    result = run_hook(COMPARES)
    assert (result.outcome, result.message) == ("failed", "kept")
    assert all((workspace / f"answer{number}.txt").is_symlink() for number in range(3))


FORGES = """
import json, os, pathlib
found = [b""]
for name in ("/proc/self/fd/0", "/proc/1/fd/0", f"/proc/{os.getppid()}/fd/0"):
    try: found.append(pathlib.Path(name).read_bytes())
    except OSError: continue
request = json.loads(max(found, key=len) or b"{}")
for descriptor in range(3, 99):
    try: os.write(descriptor, json.dumps({"passed": True, "key": request.get("key", "")}).encode())
    except OSError: pass
os._exit(0)
"""


@pytest.mark.parametrize("policy", [pytest.param(ALLOWED, marks=needs_bubblewrap), WITH_NETWORK], ids=["no-net", "net"])
def test_a_verdict_forged_by_a_program_of_a_hook_does_not_count(run_hook, tmp_path, policy):
    (tmp_path / "workspace" / "solution.py").write_text(FORGES)
    source = (
        "def check(artifact, context):\n    exec((context.workspace / 'solution.py').read_text(), {})\n    return False"
    )
    result = run_hook(source, policy=policy)
    assert (result.outcome, result.message) == (
        "error",
        "the hook was ended by code that it ran, which wrote a verdict in its place",
    )


LOOKS_AROUND = """
import os, pathlib, subprocess
def check():
    subprocess.Popen(["sleep", "{nap}"], start_new_session=True)
    others = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try: said = pathlib.Path(f"/proc/{{pid}}/cmdline").read_text()
        except OSError: continue
        if "pytest" in said and "hook_driver" not in said: others.append(said)
    return {{"passed": True, "outputs": {{"others": others, "keys": [n for n in os.environ if "KEY" in n]}}}}
"""


@pytest.mark.slow
@needs_bubblewrap
def test_a_hook_sees_no_process_of_the_session_and_leaves_none(run_hook, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    result = run_hook(LOOKS_AROUND.format(nap=NAP))
    assert (result.outcome, result.outputs) == ("passed", {"others": [], "keys": []})
    assert not running(NAP)


@pytest.mark.slow
@needs_bubblewrap
def test_hostile_files_of_the_agent_do_not_make_a_hook_pass(run_hook, tmp_path, monkeypatch):
    """A file without end, a sparse file, and compiled code next to the hook's name."""
    monkeypatch.setattr(hooks, "HOOK_SECONDS", 3.0)
    workspace = tmp_path / "workspace"
    os.mkfifo(workspace / "fifo")
    with open(workspace / "huge", "wb") as file:
        file.truncate(2**40)
    (workspace / "__pycache__").mkdir()
    for name in ("hook.py", "json.py", "__pycache__/hook.cpython-311.pyc", "sitecustomize.py"):
        (workspace / name).write_bytes(b"import os; os._exit(0)")
    outcomes = {}
    for name in ("fifo", "huge", "json.py"):
        found = run_hook(f"import json\ndef check(a, c): return len((c.workspace / {name!r}).read_bytes()) == 22")
        outcomes[name] = found.outcome
    assert outcomes == {"fifo": "error", "huge": "error", "json.py": "passed"}


def test_without_bubblewrap_no_hook_runs_unless_it_may_use_the_network(run_hook, no_bubblewrap, tmp_path):
    no_bubblewrap()
    source = "def check(): return True"
    refused = run_hook(source, policy=ALLOWED)
    assert refused.outcome == "skipped"
    assert "bwrap is not installed: install the packages bubblewrap and util-linux" in refused.message
    assert "security_policy.network_access: allow" in refused.message
    assert run_hook(source, policy=WITH_NETWORK).outcome == "passed"
    hook = Check.model_validate({"check_id": "h", "python_hook": {"path": "hook.py", "callable_name": "check"}})
    case = Case(case_id="a", title="a", path=tmp_path / "test.yaml", runner={"type": "x"}, checks=(hook,))
    with pytest.raises(UnavailableError, match="which only bubblewrap can prevent"):
        require_hooks(case, ALLOWED)
    require_hooks(case, WITH_NETWORK)
    require_hooks(case, SecurityPolicy())


@pytest.fixture
def no_bubblewrap(monkeypatch, tmp_path):
    """Makes this machine one where bubblewrap is not installed."""

    def hide():
        (tmp_path / "programs").mkdir()
        (tmp_path / "programs" / "sleep").symlink_to("/bin/sleep")
        monkeypatch.setenv("PATH", str(tmp_path / "programs"))
        bubblewrap_problem.cache_clear()

    yield hide
    bubblewrap_problem.cache_clear()


@pytest.mark.slow
@pytest.mark.skipif(not SHARED_HOOK.exists(), reason="the conformance data is not here")
def test_a_hook_of_the_original_system_works_as_it_is(run_hook):
    result = run_hook(SHARED_HOOK.read_text(), path="hook.py", callable_name="check_output")
    assert (result.outcome, result.outputs) == ("passed", {"final_output_count": 1})
