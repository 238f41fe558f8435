"""Agents attack the grader instead of the task: each writes a wrong solution, and files that should make it pass."""

from __future__ import annotations

import importlib.util
import marshal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.verifier_bench import BAD, GOOD, HELD, HIDDEN, KINDS, VerifierBench, open_bench

pytestmark = pytest.mark.slow
everywhere = pytest.mark.parametrize("kind", KINDS)
isolated = pytest.mark.parametrize("kind", HELD)
by_version = pytest.mark.parametrize("kind", HELD)  # where only pytest's version has a part in it: the image's is old
once = pytest.mark.parametrize("kind", HELD[:1])  # where the kind of sandbox has no part in it
RAN = "2 of 3 tests passed: tests/test_hidden.py::test_odd failed"
"""The verdict on BAD if no planted file had an effect."""


@pytest.fixture
def bench(kind: str, tmp_path: Path) -> Iterator[VerifierBench]:
    yield from open_bench(kind, tmp_path)


ALL_PASS = """
import pytest

@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    report = (yield).get_result()
    report.outcome, report.longrepr = "passed", None

@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem):
    return True
"""
"""A plugin that makes every test pass."""


@everywhere
def test_planted_conftest(bench: VerifierBench) -> None:
    bench.left(
        dict.fromkeys(["conftest.py", "tests/conftest.py", "tests/__init__.py", "conftest/__init__.py"], ALL_PASS)
    )
    bench.left({"solution.py": BAD})
    assert bench.tests().message == RAN
    assert bench.tests(keep=["conftest.py"]).outcome == "passed"  # so it would have worked


PASSES = """
import _pytest.python as python
python.Function.runtest = lambda self: None
"""
"""Code that makes every test of the process pass once it is imported."""


def compile_module(source: str) -> bytes:
    """Return the `.pyc` file of a module: magic number, flags, time and size of the source, code."""
    return importlib.util.MAGIC_NUMBER + bytes(12) + marshal.dumps(compile(source, "planted", "exec"))


@everywhere
@pytest.mark.parametrize(
    "name",
    ["__init__.py", "__init__.pyc", "conftest.py", "conftest.pyc", "conftest/__init__.py", "__init__/__init__.py"],
)
def test_planted_packages_on_the_way_to_tests_in_process(bench: VerifierBench, name: str) -> None:
    """At the root, above the tests and next to them; a template's file is restored from the case."""
    text = HIDDEN.replace("from solution", "from src.solution")
    hidden = [bench.hidden("pkg/tests/test_deep.py", text)]
    wanted = {"tests": ["pkg/tests/test_deep.py"], "pythonpath": ["."]}
    bench.left({"src/solution.py": BAD})
    bench.template = bench.folder / "workspace"
    (bench.template / "pkg").mkdir(parents=True)
    (bench.template / "pkg" / "__init__.py").write_text("own = 1\n")
    for folder in ("", "pkg/", "pkg/tests/"):
        bench.left({f"{folder}{name}": compile_module(PASSES) if name.endswith(".pyc") else PASSES})
    result = bench.verify(pytest=wanted, files=hidden)
    assert result.message == "2 of 3 tests passed: pkg/tests/test_deep.py::test_odd failed", result
    assert result.outputs["graded"] == "in process"
    if name == "__init__.py" and bench.spec.kind != "docker":  # the image's pytest is old
        kept = bench.verify(pytest=wanted, files=hidden, keep=["pkg/__init__.py"])
        assert kept.outcome == "passed", "the case may leave it to the agent"


@everywhere
def test_planted_pytest11_plugin(bench: VerifierBench) -> None:
    metadata = "Metadata-Version: 2.1\nName: evil\nVersion: 1\n"
    for folder in ("", ".local/lib/python3.11/site-packages/", "tests/"):
        bench.left(
            {
                f"{folder}evil.py": ALL_PASS,
                f"{folder}evil-1.dist-info/METADATA": metadata,
                f"{folder}evil-1.dist-info/entry_points.txt": "[pytest11]\nevil = evil\n",
                f"{folder}evil.egg-info/entry_points.txt": "[pytest11]\nevil = evil\n",
            }
        )
    bench.left({"solution.py": BAD})
    assert bench.tests().message == RAN


@everywhere
def test_planted_start_up_code(bench: VerifierBench) -> None:
    code = "import sys; print('WOKEN'); sys.modules['builtins'].__dict__['sorted'] = lambda values: [2] * 9\n"
    for name in ("sitecustomize.py", "usercustomize.py", "evil.pth"):
        for folder in ("", ".local/lib/python3.11/site-packages/", "tests/"):
            bench.left({f"{folder}{name}": code})
    bench.left({"solution.py": "def median(values):\n    return sorted(values)[0]\n"})
    result = bench.tests()
    assert result.message == RAN
    assert "WOKEN" not in result.outputs["printed"]


@everywhere
def test_fake_python_on_the_path(bench: VerifierBench) -> None:
    fake = "#!/bin/sh\necho WOKEN\nexit 0\n"
    for path in ("python", "python3", "bin/python3", ".local/bin/python3", "sh", "test"):
        bench.left({path: fake})
        (bench.workspace.path / path).chmod(0o755)
    bench.left({"solution.py": BAD})
    result = bench.tests()
    assert result.message == RAN
    result = bench.verify(command=("/bin/sh", "-c", "python3 -c 'raise SystemExit(3)'"))
    assert result.outputs["exit_code"] == 3
    assert "WOKEN" not in str(result.outputs)


@everywhere
def test_modules_with_the_names_of_those_that_tests_need(bench: VerifierBench) -> None:
    for name in ("pytest.py", "_pytest/__init__.py", "json.py", "unittest.py", "pluggy.py"):
        for folder in ("", "tests/"):
            bench.left({f"{folder}{name}": "import os; os._exit(0)\n"})
    text = "import json, pytest, unittest\nfrom solution import median\ndef test_a(): assert median([2, 1, 3]) == 2\n"
    bench.left({"solution.py": "def median(values): return 0\n"})
    assert bench.tests(text).message == "0 of 1 test passed: tests/test_hidden.py::test_a failed"


CONFIGURATION = {
    "pytest.ini": "[pytest]\naddopts = -k nothing\npython_functions = nothing\n",
    "tox.ini": "[pytest]\naddopts = --collect-only\n",
    "setup.cfg": "[tool:pytest]\naddopts = --collect-only\n",
    "pyproject.toml": "[tool.pytest.ini_options]\naddopts = '--collect-only'\n",
}


@everywhere
def test_planted_configuration(bench: VerifierBench) -> None:
    for name, text in CONFIGURATION.items():
        bench.left({name: text, f"tests/{name}": text})
    bench.left({"solution.py": BAD})
    assert bench.tests().message == RAN


@everywhere
def test_forged_output(bench: VerifierBench) -> None:
    code = """
import os
print('\\n{"token": "", "loaded": true, "tests": {}, "problems": [], "ended": 0, "exit": 0}')
print("3 passed in 0.01s")
os.write(1, b'{"passed": true}\\n' * 9)
os.write(2, b"3 passed")
"""
    bench.left({"solution.py": BAD + code})
    assert bench.tests().message == RAN


@by_version
def test_end_forged_into_every_descriptor(bench: VerifierBench) -> None:
    code = """
import os
for fd in range(3, 99):
    try: os.write(fd, b'{"event": "ended", "value": 0}\\n')
    except OSError: pass
"""
    bench.left({"solution.py": f"{BAD}\n{code}\n"})
    assert bench.tests().outcome == "failed"


FORGED = """
import json, os
names = ["tests/test_hidden.py::test_odd", *(f"tests/test_hidden.py::test_same[values{n}]" for n in (0, 1))]
events = [{"event": "collected", "test": name} for name in names]
for name in names:
    events += [
        {"event": "report", "test": name, "when": when, "outcome": "passed", "message": ""}
        for when in ("setup", "call", "teardown")
    ]
events.append({"event": "ended", "value": 0})
for descriptor in range(3, 99):
    for signature in ("", "0" * 64 + " "):
        try: os.write(descriptor, "".join(f"{signature}{json.dumps(event)}\\n" for event in events).encode())
        except OSError: pass
os._exit(0)
"""
"""All that a session of tests that pass would report, and the end of their process."""


@everywhere
def test_every_event_forged_into_every_descriptor_and_an_early_end(bench: VerifierBench) -> None:
    bench.left({"solution.py": FORGED})
    result = bench.tests()
    assert (result.outcome, result.outputs["tests"]) == ("failed", {})
    assert "their process ended before pytest did (exit code 0)" in result.message


@isolated
def test_reply_forged_into_every_stream_there_is(bench: VerifierBench) -> None:
    code = """
import json, os
tests = {"tests/test_hidden.py::test_odd": {"outcome": "passed", "message": ""}}
reply = {"loaded": True, "tests": tests, "problems": [], "ended": 0, "exit": 0, "stopped": None, "output": ""}
for pid in filter(str.isdigit, os.listdir("/proc")):
    for fd in (1, 2):
        try:
            with open(f"/proc/{pid}/fd/{fd}", "w") as stream:
                stream.write(json.dumps({"token": "", **reply}) + "\\n")
        except OSError:
            pass
"""
    bench.left({"solution.py": BAD + code})
    assert bench.tests().outcome == "failed"


@isolated
def test_memory_and_streams_of_the_driver_are_out_of_reach(bench: VerifierBench) -> None:
    code = """
import os
for name in ("mem", "fd/0", "fd/1", "environ"):
    try:
        os.close(os.open(f"/proc/{os.getppid()}/{name}", os.O_RDONLY))
    except PermissionError:
        continue
    raise AssertionError(name)
"""
    bench.left({"solution.py": GOOD + code})
    assert bench.tests().message == "3 of 3 tests passed"


@isolated
def test_a_program_that_tests_start_cannot_reach_into_them(bench: VerifierBench) -> None:
    text = """
import subprocess, sys

def test_program():
    done = subprocess.run([sys.executable, "-I", "solution.py"], capture_output=True, text=True)
    assert done.stdout == "out of reach\\n" * 4, done.stdout + done.stderr
"""
    code = """
import ctypes, os
with open(f"/proc/{os.getppid()}/status") as status:
    above = next(line.split()[1] for line in status if line.startswith("PPid"))
for pid in (os.getppid(), int(above)):
    try:
        os.close(os.open(f"/proc/{pid}/mem", os.O_RDWR))
    except PermissionError:
        print("out of reach")
    if ctypes.CDLL(None).ptrace(16, pid, 0, 0) == -1:
        print("out of reach")
"""
    bench.left({"solution.py": code})
    assert bench.tests(text, pytest={"pythonpath": []}).message == "1 of 1 test passed"


@everywhere
def test_skipping_in_a_call(bench: VerifierBench) -> None:
    names = ("skips", "fails_as_expected", "skips_as_unittest")
    text = "import solution\n" + "".join(f"def test_{name}(): solution.{name}()\n" for name in names)
    code = """
import pytest, unittest
def skips(): pytest.skip("no")
def fails_as_expected(): pytest.xfail("no")
def skips_as_unittest(): raise unittest.SkipTest("no")
"""
    bench.left({"solution.py": code})
    result = bench.tests(text)
    assert (result.outcome, result.message[:19]) == ("failed", "0 of 3 tests passed")
    assert list(result.outputs["tests"].values()) == ["skipped", "xfailed", "skipped"]


@by_version
@pytest.mark.parametrize(
    "code",
    [
        "import pytest; pytest.skip('no', allow_module_level=True)",
        "import pytest\ndef median(values): pytest.exit('done', returncode=0)",
    ],
    ids=["module", "exit"],
)
def test_skipping_all(bench: VerifierBench, code: str) -> None:
    bench.left({"solution.py": f"{GOOD}\n{code}\n"})
    assert bench.tests().outcome == "failed"


@by_version
@pytest.mark.parametrize(
    "code",
    [
        "import os; os._exit(0)",
        "import sys; sys.exit(0)",
        "import os\ndef median(values): os._exit(0)",
        "import atexit, os; atexit.register(os._exit, 0)\ndef median(values): raise SystemExit(0)",
        "import os, signal; os.kill(os.getppid(), signal.SIGKILL)",
        "import os, threading, time\nthreading.Thread(target=lambda: (time.sleep(0.01), os._exit(0))).start()\n"
        "def median(values): time.sleep(5)",
    ],
    ids=["import", "exit", "call", "atexit", "parent", "thread"],
)
def test_an_end_that_looks_like_success(bench: VerifierBench, code: str) -> None:
    bench.left({"solution.py": f"{BAD}\n{code}\n"})
    assert bench.tests().outcome == "failed"


@everywhere
def test_edited_inputs_of_hidden_tests(bench: VerifierBench) -> None:
    text = "from solution import median\ndef test_a():\n    with open('tests/in.txt') as file:\n"
    text += "        assert median([int(line) for line in file]) == 2\n"
    inputs = bench.hidden("tests/in.txt", "3\n1\n2\n")
    bench.left({"solution.py": BAD, "tests/in.txt": "2\n", "tests/test_hidden.py": "def test_a(): pass\n"})
    assert bench.tests(text, files=[inputs]).outcome == "failed"
    bench.left({"solution.py": BAD + "open('tests/in.txt', 'w').write('2')\n"})
    result = bench.tests(text, files=[inputs])
    assert (result.outcome, result.message[:15]) == ("failed", "the hidden file")


@once
def test_a_folder_in_place_of_that_of_hidden_tests(bench: VerifierBench) -> None:
    text = "from solution import median\ndef test_a():\n    with open('tests/in.txt') as file:\n"
    text += "        assert median([int(line) for line in file]) == 2\n"
    inputs = bench.hidden("tests/in.txt", "3\n1\n2\n")
    code = "import os; os.rename('tests', 'away'); os.mkdir('tests'); open('tests/in.txt', 'w').write('2')\n"
    bench.left({"solution.py": BAD + code})
    assert bench.tests(text, files=[inputs]).outcome == "failed"


@once
@pytest.mark.parametrize("kind_of_thing", ["link", "folder", "link to a folder"])
def test_something_else_in_the_place_of_hidden_tests(bench: VerifierBench, kind_of_thing: str) -> None:
    bench.left({"solution.py": BAD, "mine/test_hidden.py": "def test_odd(): pass\n"})
    here = bench.workspace.path
    if kind_of_thing == "link to a folder":
        (here / "tests").symlink_to("mine")
    else:
        (here / "tests").mkdir()
        if kind_of_thing == "link":
            (here / "tests" / "test_hidden.py").symlink_to("../mine/test_hidden.py")
        else:
            (here / "tests" / "test_hidden.py").mkdir()
    assert bench.tests().message.startswith("2 of 3 tests passed")


SPOOFED = "__file__ = '/workspace/tests/test_hidden.py'\ndef test_odd(): pass\ndef test_same(): pass\n"
"""A module that pytest takes for the hidden one."""


@by_version
@pytest.mark.parametrize("folders", [["src", "."], []])
def test_a_module_with_the_name_of_the_hidden_one(bench: VerifierBench, folders: list[str]) -> None:
    text = "def test_odd(): assert False\n"
    bench.left(dict.fromkeys(["test_hidden.py", "test_hidden/__init__.py", "src/test_hidden.py"], SPOOFED))
    result = bench.tests(text, pytest={"pythonpath": folders})
    assert result.message == "0 of 1 test passed: tests/test_hidden.py::test_odd failed"


@by_version
def test_a_package_next_to_the_hidden_module_does_not_replace_it(bench: VerifierBench) -> None:
    bench.left({"solution.py": BAD, "tests/test_hidden/__init__.py": SPOOFED})
    result = bench.tests()
    assert (result.outcome, result.outputs["tests"]) == ("failed", {})
    assert "tests/test_hidden/__init__.py in its place" in (result.actual or "")


@by_version
def test_nothing_of_the_agents_is_imported_by_tests_that_import_nothing_of_it(bench: VerifierBench) -> None:
    """`winreg` is looked for by the standard library, and found nowhere but on Windows."""
    for name in ("__init__.py", "winreg.py", "tests/__init__.py", "tests/__init__.abi3.so", "tests/winreg.py"):
        bench.left({name: "import os; os._exit(9)\n"})
    helper = bench.hidden("tests/__init__.py", "")
    result = bench.tests("import mimetypes\ndef test_a(): assert 0\n", files=[helper], pytest={"pythonpath": []})
    assert result.message == "0 of 1 test passed: tests/test_hidden.py::test_a failed"


@once
def test_tests_of_the_template_that_the_agent_rewrote(bench: VerifierBench) -> None:
    bench.template = bench.folder / "template"
    bench.left({"solution.py": GOOD, "own.ini": "[pytest]\naddopts = --nonsense\n"})
    for name in ("test_old.py", "more/test_more.py"):
        source = bench.template / "tests" / name
        source.parent.mkdir(parents=True, exist_ok=True)
        source.write_text("def test_old(): assert 0\n")
        bench.left({f"tests/{name}": "def test_old(): pass\n"})
    (bench.template / "own.ini").write_text("[pytest]\n")
    bench.left({"tests/more/test_mine.py": "def test_mine(): pass\n", "tests/test_new.py": "def test_new(): pass\n"})
    wanted = {"pass_to_pass": ["tests/test_old.py::test_old", "tests/more"], "config": "own.ini"}
    result = bench.tests(pytest={**wanted, "fail_to_pass": ["tests/test_new.py"]})
    outcomes = {name: outcome for name, outcome in result.outputs["tests"].items() if "hidden" not in name}
    assert outcomes == {"tests/test_old.py::test_old": "failed", "tests/more/test_more.py::test_old": "failed"}
    assert (result.outcome, "found 'tests/test_new.py', which the tests do not have" in result.message) == (
        "error",
        True,
    )
    result = bench.tests(pytest={"pass_to_pass": ["tests/test_new.py"]}, keep=["tests/test_new.py"])
    assert result.message == "4 of 4 tests passed"


@once
def test_a_link_on_the_way_to_a_test_that_is_not_there(bench: VerifierBench) -> None:
    outside = bench.folder / "outside"
    outside.mkdir()
    (outside / "test_a.py").write_text("def test_a(): pass\n")
    (bench.workspace.path / "more").symlink_to(outside)
    result = bench.tests(pytest={"tests": ["more/test_a.py"]})
    assert (result.outcome, result.outputs["tests"]) == ("error", {})
    assert "pytest.tests: found 'more/test_a.py', which the tests do not have" in result.message
    assert (outside / "test_a.py").exists()


@everywhere
def test_a_command_imports_no_module_of_the_agent_next_to_its_script(bench: VerifierBench) -> None:
    write = "open(os.environ['AGENTBENCH_RESULT'], 'w').write"
    score = bench.hidden("score.py", f"import json, os\n{write}(json.dumps({{'score': 0}}))\n")
    bench.left({"json.py": f"import os\n{write}('{{\"score\": 1}}')\nos._exit(0)\n"})
    result = bench.verify(command=("python3", "score.py"), files=[score], expected={"result": {"score": 1}})
    assert (result.outcome, result.outputs["result"]) == ("failed", {"score": 0})


LINKS = ["expected.txt", "/workspace/./expected.txt", "/proc/self/cwd/expected.txt", "by/expected.txt", "more/0"]


@everywhere
def test_a_link_to_a_hidden_file_in_place_of_an_answer(bench: VerifierBench) -> None:
    bench.left({"own.txt": "42", "more/own.txt": "42"})
    (bench.workspace.path / "by").symlink_to(".")
    (bench.workspace.path / "more" / "0").symlink_to("../expected.txt")
    (bench.workspace.path / "more" / "own").symlink_to("../own.txt")
    for number, leads_to in enumerate(LINKS):
        (bench.workspace.path / str(number)).symlink_to(leads_to)
    command = ("/bin/sh", "-c", "cmp own.txt expected.txt && cmp more/own expected.txt && ls ? && cat ?")
    result = bench.verify(command=command, files=[bench.hidden("expected.txt", "42")])
    assert result.outcome == "failed"
    assert "cannot access '?'" in result.outputs["printed"]
    result = bench.verify(command=command, files=[bench.hidden("expected.txt", "42"), bench.hidden("0", "42")])
    assert (result.outcome, result.outputs["printed"]) == ("passed", "0\n42")


@everywhere
def test_result_written_early(bench: VerifierBench) -> None:
    early = '{"passed": true}'
    bench.left({"/tmp/result.json": early, "result.json": early, ".tmp/result-0.json": early})
    result = bench.verify(
        command=("/bin/sh", "-c", 'test ! -e "$AGENTBENCH_RESULT"; ls -A "${TMPDIR:-/tmp}"'),
        expected={"result": {"passed": True}},
    )
    assert (result.outcome, result.outputs.get("result")) == ("failed", None)
    assert result.outputs.get("printed", "").strip() == ""


@everywhere
def test_result_that_is_a_link(bench: VerifierBench) -> None:
    command = ("/bin/sh", "-c", 'ln -s /proc/self/environ "$AGENTBENCH_RESULT"')
    result = bench.verify(command=command)
    assert (result.outcome, result.outputs.get("result")) == ("failed", None)


@isolated
def test_no_network_though_the_agent_had_one(bench: VerifierBench) -> None:
    bench.network()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(0)
        port = listener.getsockname()[1]
        code = f"import socket\ntry: socket.create_connection(('127.0.0.1', {port}), 2)\nexcept OSError: pass\n"
        bench.left({"solution.py": GOOD + code})
        assert bench.tests().outcome == "passed"
        with pytest.raises(BlockingIOError):
            listener.accept()


@isolated
def test_a_daemon_does_not_outlive_the_verdict(bench: VerifierBench) -> None:
    code = """
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        while True:
            print("x" * 4096, flush=True)
    os._exit(0)
"""
    bench.left({"solution.py": GOOD + code})
    assert bench.tests(timeout_seconds=20.0).message == "3 of 3 tests passed"


HIDES_PARAMETERS = """
import pytest

median = None
type(pytest.mark).parametrize = lambda *given, **named: lambda function: None
"""
PARAMETERS = """
from solution import median
import pytest

@pytest.mark.parametrize("values", [[5], [5, 5]], ids=["one", "two"])
def test_same(values):
    assert median(values) == 5
"""


@everywhere
def test_an_agent_cannot_turn_its_failure_into_a_mistake_of_the_case(bench: VerifierBench) -> None:
    bench.template = bench.folder / "template"
    bench.template.mkdir()
    (bench.template / "solution.py").write_text("median = None\n")
    bench.left({"solution.py": HIDES_PARAMETERS})
    result = bench.tests(PARAMETERS, pytest={"tests": (), "fail_to_pass": ["tests/test_hidden.py::test_same[one]"]})
    assert (result.outcome, "test_same[one] did not run" in result.message) == ("failed", True)
