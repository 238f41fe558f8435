"""Agents that try to make their failure look like trouble of the grader, which would be no verdict at all."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.verifier_bench import BAD, HELD, HIDDEN, VerifierBench, open_bench

pytestmark = pytest.mark.slow
isolated = pytest.mark.parametrize("kind", HELD)
once = pytest.mark.parametrize("kind", HELD[:1])  # where the kind of sandbox has no part in it

TOOLS = """
import os, resource, signal, time
assert os.getpid() < 1000, "not in namespaces of its own"
def say(event):
    for fd in range(3, 40):
        try: os.write(fd, event)
        except OSError: pass
"""


@pytest.fixture
def bench(kind: str, tmp_path: Path) -> Iterator[VerifierBench]:
    yield from open_bench(kind, tmp_path)


@isolated
@pytest.mark.parametrize(
    "code",
    [
        "for limit in (resource.RLIMIT_AS, resource.RLIMIT_DATA): resource.prlimit(os.getppid(), limit, (1, 1))\n"
        "say(b'x' * 60000); os._exit(0)",
        "os.kill(os.getppid(), signal.SIGINT); time.sleep(9)",
        "os.kill(-1, signal.SIGKILL)",
    ],
    ids=["limits", "interrupt", "all"],
)
def test_the_driver_is_ended(bench: VerifierBench, code: str) -> None:
    bench.left({"solution.py": f"{TOOLS}\n{code}\n"})
    result = bench.tests(timeout_seconds=20.0)
    assert result.outcome == "failed"
    # Without memory it dies at its next allocation, which may come after the report of an empty session
    expected = ["the program that runs the tests was ended before its report: exit code "]
    if "limit" in code:
        expected.append("0 of 0 tests passed: their process ended before pytest did")
    assert result.message.startswith(tuple(expected))


@once
@pytest.mark.parametrize(
    "code",
    [
        """say(b'\\n{"event": "loaded", "value": null}\\n{"event": "pytest"}\\n')""",
        """say(b'[' * 30000 + b'\\n[1]\\n{"event": "ended", "value": 1e999}\\n')""",
        """say(b'{"event": "problem", "where": "' + b'x' * 50000 + b'", "message": 1}\\n' * 99)""",
        """say(b'[' + b'[],' * 9000000 + b'0]\\n')""",
        """
for number in range(99):
    say(b'{"event": "collected", "test": "tests/test_hidden.py::%d%s"}\\n' % (number, b'x' * 50000))
""",
        """
say(rb'{"event": "report", "test": "t::\\ud800", "when": "call", "outcome": {"a": 1}, "message": ""}')
say(b'\\n')
""",
    ],
    ids=["again", "deep", "texts", "long", "names", "forms"],
)
def test_reports_without_form_or_measure(bench: VerifierBench, code: str) -> None:
    bench.left({"solution.py": f"{TOOLS}\n{code}\nos._exit(0)\n"})
    result = bench.tests(timeout_seconds=20.0)
    assert result.outcome == "failed"
    assert "had not ended" not in result.message
    assert len(result.model_dump_json()) < 2_500_000
    assert len(result.message) < 3_000


@once
def test_texts_that_no_file_can_hold(bench: VerifierBench) -> None:
    bench.left({"solution.py": "import pytest\ndef median(values): pytest.fail('\\ud800' * 9)\n"})
    result = bench.tests()
    assert (result.outcome, result.model_dump_json().count("?????????") > 0) == ("failed", True)


@once
def test_paths_that_are_too_long(bench: VerifierBench) -> None:
    name = "n" * 250
    here = os.open(bench.workspace.path, os.O_RDONLY)
    for _ in range(20):
        os.mkdir(name, dir_fd=here)
        below = os.open(name, os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(here)
    bench.left({"solution.py": BAD})
    result = bench.tests()
    assert (result.outcome, result.message[-30:]) == ("failed", "it has paths that are too long")


@once
@pytest.mark.parametrize("thing", ["link", "file"])
def test_something_else_in_the_place_of_its_tmp(bench: VerifierBench, thing: str) -> None:
    bench.left({"solution.py": BAD})
    if thing == "link":
        (bench.workspace.path / ".tmp").symlink_to("/etc")
    else:
        (bench.workspace.path / ".tmp").write_text("")
    assert bench.tests().message.startswith("2 of 3 tests passed")


@once
def test_names_that_are_no_text(bench: VerifierBench) -> None:
    folder = os.fsencode(bench.workspace.path)
    for name in (b"\xff.pth", b"\xff.py", b"\n\x1b[31m.py"):
        Path(os.fsdecode(os.path.join(folder, name))).touch()
    bench.left({"solution.py": BAD})
    assert bench.tests().message.startswith("2 of 3 tests passed")


@once
def test_hidden_files_become_more_than_can_be_looked_at(bench: VerifierBench) -> None:
    code = """
import os
def median(values):
    if values == [5, 5, 5]:
        os.makedirs("tests/" + "/".join("a" * 150))
    return sorted(values)[len(values) // 2]
"""
    bench.left({"solution.py": code})
    bench.hidden("tests/test_hidden.py", HIDDEN)
    files = [{"target": "tests", "source": bench.folder / "verify" / "tests"}]
    result = bench.verify(pytest={"tests": ["tests/test_hidden.py"]}, files=files)
    assert (result.outcome, result.message[:27]) == ("failed", "the hidden files were chang")


@once
def test_results_that_nest_too_deep(bench: VerifierBench) -> None:
    bench.left({"result": '{"a": ' + "[" * 900 + "]" * 900 + "}"})
    result = bench.verify(command=("/bin/sh", "-c", 'cat result > "$AGENTBENCH_RESULT"'))
    assert (result.outcome, result.message) == ("failed", "$AGENTBENCH_RESULT holds no JSON: nested too deeply")
