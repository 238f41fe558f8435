"""Verifiers with `apart` grade without any file of the solution, which returns only plain data."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from support.verifier_bench import BAD, GOOD, HELD, KINDS, VerifierBench, open_bench

from pytest_agentbench.errors import SandboxError
from pytest_agentbench.workspaces.sandboxes.base import ExecResult
from pytest_agentbench.workspaces.sandboxes.host import HostSandbox

pytestmark = pytest.mark.slow
everywhere = pytest.mark.parametrize("kind", KINDS)
isolated = pytest.mark.parametrize("kind", HELD)
once = pytest.mark.parametrize("kind", HELD[:1])  # where the kind of sandbox has no part in it

HIDDEN = """
import pytest
from agentbench_solution import Solution, SolutionError

solution = Solution(seconds=20)

def test_call():
    assert solution.call("solution:median", [3, 1, 2]) == 2
    with pytest.raises(SolutionError, match="^TypeError: "):
        solution.call("solution:median", 1)
    with pytest.raises(SolutionError, match="^ModuleNotFoundError: "):
        solution.call("test_hidden:median", 1)

def test_run():
    assert solution.run(["cat", "-", "note"], stdin="ö") == (0, "önote")
    assert solution.run(["sh", "-c", "echo >&2 no; exit 3"]) == (3, "no\\n")
    with pytest.raises(SolutionError, match="had not ended after 0.2 s"):
        Solution(seconds=0.2).run(["sleep", "60"])

def test_read():
    assert solution.read("note") == b"note"
    for path in ("link", "../note", "gone", "tests/test_hidden.py"):
        with pytest.raises(SolutionError):
            solution.read(path)
"""


@pytest.fixture
def bench(kind: str, tmp_path: Path) -> Iterator[VerifierBench]:
    yield from open_bench(kind, tmp_path)


@everywhere
def test_hidden_tests_call_a_solution(bench: VerifierBench) -> None:
    bench.left({"solution.py": GOOD, "note": "note"})
    (bench.workspace.path / "link").symlink_to("note")
    result = bench.tests(HIDDEN, apart=True)
    assert result.message == "3 of 3 tests passed", result
    assert result.outputs["graded"] == "apart"


@once
def test_a_long_value_arrives_if_the_solution_makes_its_output_non_blocking(bench: VerifierBench) -> None:
    bench.left({"solution.py": "import os\ndef many():\n    os.set_blocking(1, False)\n    return [1] * 10**5\n"})
    asks = "from agentbench_solution import Solution\ndef test_many():\n    "
    result = bench.tests(f"{asks}assert len(Solution(seconds=20).call('solution:many')) == 10**5\n", apart=True)
    assert result.message == "1 of 1 test passed", result


ASKS = """
from agentbench_solution import Solution

def test_median():
    assert Solution(seconds=20).call("solution:median", [3, 1, 2]) == 2
"""
IMPORTS = """
from solution import median

def test_median():
    assert median([3, 1, 2]) == 2
"""
NOT_PASSED = "0 of 1 test passed: tests/test_hidden.py::test_median failed"


def fails_apart(bench: VerifierBench, code: str) -> None:
    """Require that an attack on the tests' process passes there, and fails apart."""
    bench.left({"solution.py": code})
    assert bench.tests(IMPORTS).outcome == "passed"
    assert bench.tests(ASKS, apart=True).message == NOT_PASSED


@everywhere
def test_a_result_that_equals_everything(bench: VerifierBench) -> None:
    fails_apart(bench, "class Any(int):\n    def __eq__(self, other): return True\ndef median(values): return Any(0)\n")
    bench.left({"solution.py": "class Any:\n    __eq__ = lambda *_: True\ndef median(values): return Any()\n"})
    assert "TypeError" in (bench.tests(ASKS, apart=True).actual or "")


@everywhere
def test_pytest_changed_from_within(bench: VerifierBench) -> None:
    fails_apart(bench, f"import _pytest.python\n_pytest.python.Function.runtest = lambda self: None\n{BAD}")


KEY_FINDER = """
import gc, os, sys
def median(values):
    for found in gc.get_objects():
        if type(found).__name__ == "_Reports":
            name = "tests/test_hidden.py::test_median"
            for when in ("call", "teardown"):
                found.add("report", test=name, when=when, outcome="passed", message="")
            found.add("ended", value=0)
            os._exit(0)
    return 0
"""


@everywhere
def test_the_key_of_the_reports_found_in_memory(bench: VerifierBench) -> None:
    fails_apart(bench, KEY_FINDER)


PAGE = Path(__file__).parents[2] / "docs" / "verifiers.md"


@everywhere
def test_the_pages_own_example_holds(bench: VerifierBench) -> None:
    """Tricks that win where tests import the solution, all at once."""
    shown = PAGE.read_text(encoding="utf-8").partition("<!-- file: cases/median/verify/tests/test_median.py -->\n")[2]
    text = shown.partition("```python\n")[2].partition("```")[0]
    bench.left({"stats.py": GOOD})
    assert bench.tests(text, apart=True).message == "3 of 3 tests passed"
    equal = "class Any(int):\n    def __eq__(self, other): return True\nvalue = Any(0)\n"
    runtest = "import _pytest.python\n_pytest.python.Function.runtest = lambda self: None\n"
    ends = "import atexit, os\natexit.register(os._exit, 0)\n"
    bench.left({"stats.py": f"{runtest}{ends}{equal}\ndef median(values): return value\n", "json.py": runtest})
    assert bench.tests(text, apart=True).message.startswith("0 of 3 tests passed: ")


NO_RESULTS = [
    "import os; os._exit(0)",
    "import atexit, os; atexit.register(os._exit, 0)\ndef median(values): raise SystemExit(0)",
    "import os\nfor fd in range(3, 99):\n    try: os.write(fd, b'{\"value\": 2}')\n    except OSError: pass\n"
    "os._exit(0)",
    "print('{\"value\": 2}', flush=True)\nimport os; os._exit(0)",
    "def median(values):\n    found = []\n    for _ in range(9999): found = [found]\n    return found",
    "def median(values): return float('nan')",
    "def median(values): return 'x' * 2**24",
]
ASKS_ALL = """
import pytest
from agentbench_solution import Solution, SolutionError

@pytest.mark.parametrize("number", range(%d))
def test_median(number):
    with pytest.raises(SolutionError):
        Solution(seconds=20).call(f"solution_{number}:median", [3, 1, 2])
"""


@everywhere
def test_a_solution_cannot_pass_tests_with_malformed_results(bench: VerifierBench) -> None:
    bench.left({f"solution_{number}.py": code for number, code in enumerate(NO_RESULTS)})
    count = len(NO_RESULTS)
    assert bench.tests(ASKS_ALL % count, apart=True).message == f"{count} of {count} tests passed"


SCORES = """
import json, os
from agentbench_solution import Solution, SolutionError

try:
    right = Solution(seconds=20).run(["python3", "solution.py"], stdin="3 1 2") == (0, "2\\n")
except SolutionError:
    right = False
with open(os.environ["AGENTBENCH_RESULT"], "w") as file:
    json.dump({"right": right}, file)
"""
REWRITES = """
import os, pathlib, time
print("result" if any("RESULT" in name or "SOLUTION" in name for name in os.environ) else 0, flush=True)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        while True:
            for folder in ("/tmp", os.environ["HOME"], *(f"/proc/{pid}/root/tmp" for pid in range(1, 99))):
                try: found = list(pathlib.Path(folder).glob("result-*"))
                except OSError: continue
                for file in found: file.write_text('{"right": true}')
    os._exit(0)
"""


@isolated
def test_a_daemon_that_rewrites_the_result(bench: VerifierBench) -> None:
    bench.left({"solution.py": REWRITES})
    score = bench.hidden("score.py", SCORES)
    fields = {"command": ("python3", "score.py"), "files": [score], "expected": {"result": {"right": True}}}
    result = bench.verify(apart=True, **fields)
    assert (result.outcome, result.outputs["result"]) == ("failed", {"right": False})
    bench.left({"solution.py": "print(sorted(input().split())[1])\n"})
    assert bench.verify(apart=True, **fields).outcome == "passed"


LOOKS = """
import os, pathlib, subprocess
MARK = "a-mark-" + "of-hidden-files"
def look():
    home = pathlib.Path(os.environ["HOME"])
    (home / ".local/lib/python3.11/site-packages").mkdir(parents=True)
    (home / ".local/lib/python3.11/site-packages/evil.pth").write_text("import os; os._exit(0)")
    for name in ("conftest.py", "json.py", "tests/test_hidden.py", "tests/__init__.py", "/tmp/agentbench/json.py"):
        pathlib.Path(name).parent.mkdir(parents=True, exist_ok=True)
        pathlib.Path(name).write_text("import os; os._exit(0)")
    found = [name for name in os.environ if name.startswith("AGENTBENCH")]
    for top in ("/workspace", "/tmp"):
        for folder, _, names in os.walk(top):
            found += [f"{folder}/{name}" for name in names if MARK in pathlib.Path(folder, name).read_text("latin-1")]
    for pid in filter(str.isdigit, os.listdir("/proc")):
        for name in ("cmdline", "environ", "cwd/tests/test_hidden.py"):
            try: text = pathlib.Path(f"/proc/{pid}/{name}").read_text("latin-1")
            except OSError: continue
            if MARK in text or "_become_tests" in text: found.append(pid + name)
    return found
def end():
    os.kill(-1, 9)
"""
LOOKED = """
import contextlib, os
from agentbench_solution import Solution, SolutionError
def test_look():  # a-mark-of-hidden-files
    assert Solution(seconds=20).call("solution:look") == []
    with contextlib.suppress(SolutionError):
        Solution(seconds=20).call("solution:end")
    assert sorted(os.listdir("/tmp/agentbench")) == ["agentbench_solution.py", "solution"]
    assert os.listdir("tests") == ["test_hidden.py"]
"""


@isolated
def test_a_solution_finds_no_file_of_its_grader(bench: VerifierBench) -> None:
    """The solution sees no hidden files, variables or processes; it plants and ends only its own."""
    bench.left({"solution.py": LOOKS})
    result = bench.tests(LOOKED, apart=True)
    assert result.message == "1 of 1 test passed", result


@once
def test_a_command_in_a_shell_asks_too(bench: VerifierBench) -> None:
    bench.left({"solution.py": "import sys\nprint(sys.stdin.read().upper())\nsys.exit(4)\n"})
    command = "echo a | python3 -m agentbench_solution python3 solution.py; test $? = 4 && test ! -e solution.py"
    result = bench.verify(command=("/bin/sh", "-c", command), apart=True)
    assert (result.outcome, result.outputs["printed"]) == ("passed", "A\n\n")


@once
def test_a_failure_of_the_solutions_sandbox_is_an_error(bench: VerifierBench, monkeypatch: pytest.MonkeyPatch) -> None:
    execute = HostSandbox.exec

    async def fail(self: HostSandbox, argv: Sequence[str], **options: Any) -> ExecResult:
        if argv[0] == "lost":
            raise SandboxError("the sandbox is gone")
        return await execute(self, argv, **options)

    monkeypatch.setattr(HostSandbox, "exec", fail)
    text = "from agentbench_solution import Solution\ndef test_a(): Solution().run(['lost'])\n"
    result = bench.tests(text, apart=True)
    assert (result.outcome, "the sandbox is gone" in result.message) == ("error", True), result


@once
def test_a_command_that_cannot_be_started_has_exit_code_126(bench: VerifierBench) -> None:
    text = "from agentbench_solution import Solution\ndef test_a(): assert Solution().run(['x' * 2**18])[0] == 126\n"
    result = bench.tests(text, apart=True)
    assert result.outcome == "passed", result
