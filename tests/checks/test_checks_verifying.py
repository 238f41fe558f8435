"""Hidden tests and commands decide by an agent's files, each in a separate sandbox."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.verifier_bench import BAD, GOOD, KINDS, VerifierBench, open_bench

from pytest_agentbench.checks.verifying.staging import put_answer, source_digest
from pytest_agentbench.records.case import HiddenFile, Verifier
from pytest_agentbench.workspaces.workspace import Workspace

everywhere = pytest.mark.parametrize("kind", KINDS)
plainly = pytest.mark.parametrize("kind", ["local"])


@pytest.fixture
def bench(kind: str, tmp_path: Path) -> Iterator[VerifierBench]:
    yield from open_bench(kind, tmp_path)


@everywhere
@pytest.mark.slow
def test_hidden_tests_decide(bench: VerifierBench) -> None:
    bench.left({"solution.py": GOOD})
    result = bench.tests()
    assert (result.outcome, result.message) == ("passed", "3 of 3 tests passed")
    assert result.outputs["tests"] == dict.fromkeys(
        ["tests/test_hidden.py::test_odd", *(f"tests/test_hidden.py::test_same[values{n}]" for n in (0, 1))], "passed"
    )
    assert "3 passed" in result.outputs["printed"]
    bench.left({"solution.py": BAD})
    result = bench.tests()
    assert (result.kind, result.dimensions, result.outcome) == ("verify", ("task",), "failed")
    assert result.message == "2 of 3 tests passed: tests/test_hidden.py::test_odd failed"
    assert result.actual == "assert 3 == 2 +  where 3 = median([3, 1, 2])"


@everywhere
def test_a_command_decides_by_its_exit_code(bench: VerifierBench) -> None:
    bench.left({"answer.txt": "42\n"})
    script = bench.hidden("check.sh", 'echo "found $(cat answer.txt)"; test "$(cat answer.txt)" = 42\n')
    result = bench.verify(command=("sh", "check.sh"), files=[script])
    assert (result.outcome, result.outputs["exit_code"]) == ("passed", 0)
    assert result.outputs["printed"] == "found 42\n"
    bench.left({"answer.txt": "41\n"})
    result = bench.verify(command=("sh", "check.sh"), files=[script])
    assert (result.outcome, result.actual) == ("failed", "found 41")
    assert result.message == "the verifier's command ended with exit code 1, expected 0"
    result = bench.verify(command=("sh", "check.sh"), files=[script], expected={"exit_code": 1})
    assert result.outcome == "passed"
    assert bench.workspace.kind("check.sh") is None


@everywhere
def test_a_command_may_write_a_result(bench: VerifierBench) -> None:
    def result(text: str, **expected: object) -> tuple[str, object]:
        command = ("/bin/sh", "-c", f"printf %s '{text}' > $AGENTBENCH_RESULT")
        found = bench.verify(command=command, expected=expected)
        return found.outcome, found.outputs.get("result")

    told = {"score": 0.5, "parts": {"a": 1, "b": 2}}
    assert result(json.dumps(told)) == ("passed", told)
    assert result(json.dumps(told), result={"parts": {"a": 1}}) == ("passed", told)
    assert result(json.dumps(told), result={"score": 1}) == ("failed", told)
    assert result("[1]") == ("failed", None)
    assert result("{") == ("failed", None)


@plainly
def test_the_output_and_result_of_a_command_are_compared(bench: VerifierBench) -> None:
    def outcome(**expected: object) -> str:
        return bench.verify(command=("echo", "all good"), expected=expected).outcome

    assert outcome(output_contains=["good", "all"]) == "passed"
    assert outcome(output_contains=["good", "bad"]) == "failed"
    assert outcome(result={"a": 1}) == "failed"


@everywhere
@pytest.mark.slow
def test_an_endless_verifier_is_a_failure_of_the_agent(bench: VerifierBench) -> None:
    bench.left({"solution.py": "def median(values):\n    while True: pass\n"})
    result = bench.tests(timeout_seconds=3.0)
    assert (result.outcome, result.outputs["tests"]["tests/test_hidden.py::test_odd"]) == ("failed", "unfinished")
    assert "0 of 3 tests passed: they had not ended after 3 s" in result.message
    result = bench.verify(command=("sleep", "60"), timeout_seconds=0.5)
    assert (result.outcome, result.message) == ("failed", "the verifier had not ended after 0.5 s")


@everywhere
@pytest.mark.slow
def test_all_that_is_expected_has_to_run(bench: VerifierBench) -> None:
    bench.left({"solution.py": GOOD})
    odd = "tests/test_hidden.py::test_odd"
    later = {"fail_to_pass": [odd], "pass_to_pass": ["./tests//later.py::t"]}
    result = bench.tests(pytest={"tests": (), **later}, keep=["tests/later.py"])
    assert result.message == "1 of 1 test passed: tests/later.py::t did not run"
    result = bench.tests(pytest={"tests": (), "fail_to_pass": [odd, "tests/test_hidden.py::test_same"]})
    assert (result.outcome, len(result.outputs["tests"])) == ("passed", 3)
    assert bench.tests("x = 1\n").message == "0 of 0 tests passed: tests/test_hidden.py did not run"


@plainly
def test_only_a_plain_pass_counts(bench: VerifierBench) -> None:
    text = """
import pytest, unittest
def test_skips(): pytest.skip("not today")
@pytest.mark.xfail
def test_xfails(): assert False
@pytest.mark.xfail
def test_xpasses(): pass
@pytest.fixture
def broken():
    yield
    raise RuntimeError
def test_ends_badly(broken): pass
class TestOld(unittest.TestCase):
    def test_parts(self):
        for number in (1, 2, 3):
            with self.subTest(number): self.assertEqual(number, 1)
"""
    result = bench.tests(text)
    outcomes = {name.rpartition("::")[2]: outcome for name, outcome in result.outputs["tests"].items()}
    assert outcomes == {
        "test_skips": "skipped",
        "test_xfails": "xfailed",
        "test_xpasses": "xpassed",
        "test_ends_badly": "failed",
        "test_parts": "failed",
    }
    assert (result.outcome, result.message[:18]) == ("failed", "0 of 5 tests passe")


@plainly
@pytest.mark.slow
def test_a_plugin_and_a_configuration_are_used_where_they_are_named(bench: VerifierBench) -> None:
    text = "import pytest\n@pytest.mark.ours\ndef test_a(tmp_path): pass\n"
    ini = bench.hidden("own.ini", "[pytest]\nmarkers = ours\naddopts = --strict-markers\n")
    assert bench.tests(text, files=[ini], pytest={"config": "own.ini"}).outcome == "passed"
    ini = bench.hidden("own.ini", "[pytest]\naddopts = --strict-markers\n")
    assert bench.tests(text, files=[ini], pytest={"config": "own.ini"}).outcome == "failed"
    text = "import asyncio\nasync def test_a(): await asyncio.sleep(0)\n"
    assert bench.tests(text).outcome == "failed"
    uses_it = {"plugins": ["anyio.pytest_plugin"]}
    text = "import pytest\n@pytest.mark.anyio\nasync def test_a(anyio_backend_name): pass\n"
    assert bench.tests(text).outcome == "failed"
    assert bench.tests(text, pytest=uses_it).outcome == "passed"


@plainly
def test_hidden_folders_replace_existing_files(bench: VerifierBench) -> None:
    bench.left({"data/extra.txt": "mine", "data/in.txt": "mine", "name": "a file", "way/x": "y"})
    (bench.workspace.path / "away").symlink_to("/etc")
    folder = bench.folder / "data"
    folder.mkdir()
    (folder / "in.txt").write_text("ours")
    script = bench.hidden("run", "#!/bin/sh\ncat data/* name/a away/b; ls\n")
    script["source"].chmod(0o755)
    files = [
        {"target": "name/a", "source": folder / "in.txt"},
        {"target": "away/b", "source": folder / "in.txt"},
        {"target": "data", "source": folder},
        {**script, "target": "./run"},
    ]
    result = bench.verify(command=("./run",), files=files)
    assert result.outputs["printed"] == "oursoursoursaway\ndata\nname\nrun\nway\n"


@pytest.mark.slow
@plainly
def test_a_folder_that_the_agent_locked_is_opened(bench: VerifierBench) -> None:
    bench.left({"solution.py": GOOD, "tests/test_hidden.py": "def test_odd(): pass\n"})
    (bench.workspace.path / "tests").chmod(0o500)
    assert bench.tests().message == "3 of 3 tests passed"


@plainly
def test_files_that_configure_python_are_those_of_the_template(bench: VerifierBench) -> None:
    bench.template = bench.folder / "template"
    bench.template.mkdir()
    (bench.template / "conftest.py").write_text("theirs")
    (bench.template / "own.egg-info").mkdir()
    (bench.template / "own.egg-info" / "top_level.txt").write_text("own")
    names = ["conftest.py", "a/conftest.py", "pytest.ini", ".pytest.ini", "tox.ini", "setup.cfg", "pyproject.toml"]
    names += ["sitecustomize.py", "b/UserCustomize/__init__.py", "x.pth", "evil.dist-info/entry_points.txt", "a/b.pyc"]
    names += ["a/__pycache__/b.cpython-311.pyc", "kept/pyproject.toml", "solution.py", "setup.py"]
    bench.left(dict.fromkeys(names, "mine"))
    find = ("/bin/sh", "-c", "find . -name .tmp -prune -o -type f -print | sort; cat conftest.py")
    result = bench.verify(command=find, keep=["./kept/pyproject.toml"])
    assert result.outputs["printed"].splitlines() == [
        "./conftest.py",
        "./kept/pyproject.toml",
        "./own.egg-info/top_level.txt",
        "./setup.py",
        "./solution.py",
        "theirs",
    ]


@everywhere
def test_each_verifier_has_a_folder_of_its_own(bench: VerifierBench) -> None:
    bench.left({"a": "1", "/tmp/scratch": "2"})
    command = ("/bin/sh", "-c", "cat a; rm a; ls -A . ${TMPDIR:-/tmp}; echo 3 > b")
    for _ in range(2):
        result = bench.verify(command=command)
        assert "scratch" not in result.outputs["printed"]
        assert result.outputs["printed"].startswith("1")
    assert bench.workspace.read_text("a") == "1"
    assert bench.workspace.kind("b") is None


@pytest.mark.slow
@everywhere
def test_a_sandbox_that_cannot_verify_is_an_error(bench: VerifierBench) -> None:
    result = bench.tests(pytest={"plugins": ["no_such_plugin"]})
    assert result.outcome == "error"
    assert result.message.startswith("pytest cannot be run in the sandbox: ")
    assert "no_such_plugin" in result.message
    missing = {"target": "a", "source": bench.folder / "gone"}
    result = bench.verify(command=("true",), files=[missing])
    assert (result.outcome, result.message[:17]) == ("error", "FileNotFoundError")


def test_a_digest_differs_with_content_and_mode(tmp_path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    file = folder / "a"
    seen = set()
    one, all_of_it = HiddenFile(target="t", source=file), HiddenFile(target="t", source=folder)
    for text, mode in (("1", 0o644), ("2", 0o644), ("2", 0o755), ("2", 0o775)):
        file.write_text(text)
        file.chmod(mode)
        seen.add((source_digest(one), source_digest(all_of_it)))
    assert len(seen) == 3
    os.mkdir(folder / "__pycache__")
    before = source_digest(all_of_it)
    (folder / "__pycache__" / "a.pyc").write_text("")
    assert source_digest(all_of_it) == before


@plainly
def test_the_answer_is_put_before_hidden_texts(bench: VerifierBench) -> None:
    bench.left({"solution.txt": "left by a tool", "kept.txt": "kept"})
    bench.answer = "```\nanswered\n```"
    command = ("/bin/sh", "-c", "cat solution.txt hidden.txt kept.txt")
    files = [{"target": "hidden.txt", "text": "hidden\n"}]
    result = bench.verify(command=command, files=files, answer_file="solution.txt")
    assert result.outputs["printed"] == "answered\nhidden\nkept"
    result = bench.verify(command=command, files=files, answer_file="hidden.txt")
    assert result.outputs["printed"] == "left by a toolhidden\nkept"
    result = bench.verify(command=command, files=files)
    assert result.outputs["printed"] == "left by a toolhidden\nkept"


@plainly
@pytest.mark.slow
def test_apart_the_answer_is_put_to_the_solution(bench: VerifierBench) -> None:
    bench.answer = GOOD
    asks = (
        "from agentbench_solution import Solution\ndef test_it(): assert Solution().call('s:median', [3, 1, 2]) == 2\n"
    )
    files = [{"target": "test_it.py", "text": asks}]
    result = bench.verify(pytest={"tests": ["test_it.py"]}, files=files, answer_file="s.py", apart=True)
    assert (result.outcome, result.outputs["graded"]) == ("passed", "apart")
    bench.answer = BAD
    result = bench.verify(pytest={"tests": ["test_it.py"]}, files=files, answer_file="s.py", apart=True)
    assert result.outcome == "failed"


def test_a_text_has_the_digest_of_a_file_that_holds_it(tmp_path) -> None:
    (tmp_path / "a").write_text("é\n", encoding="utf-8")
    one, other = HiddenFile(target="t", source=tmp_path / "a"), HiddenFile(target="t", text="é\n")
    assert source_digest(one) == source_digest(other)
    assert source_digest(other) != source_digest(HiddenFile(target="t", text="e\n"))


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        ("x = 1", "x = 1"),
        ("Here:\n```python\nx = 1\n```\nThen:\n```\nx = 2\n```", "x = 1\n"),
        ("```\nx = 1\n```", "x = 1\n"),
        ("  ```py\n  x = 1\n  ```", "  x = 1\n"),
        ("```python\nx = 1", "```python\nx = 1"),
        ("<think>```\nx = 0\n```</think>\n```\nx = 1\n```", "x = 1\n"),
        ("a ``` b", "a ``` b"),
        ("", ""),
    ],
)
def test_the_first_block_of_an_answer_is_its_code(tmp_path, answer: str, code: str) -> None:
    put_answer(Verifier(check_id="v", answer_file="./src//solution.py"), answer, Workspace(tmp_path))
    assert (tmp_path / "src" / "solution.py").read_text() == code


def test_an_answer_replaces_a_link_and_follows_none(tmp_path) -> None:
    (tmp_path / "elsewhere").write_text("as before")
    work = tmp_path / "work"
    work.mkdir()
    (work / "solution.py").symlink_to(tmp_path / "elsewhere")
    put_answer(Verifier(check_id="v", answer_file="solution.py"), "new", Workspace(work))
    assert (work / "solution.py").read_text() == "new"
    assert (tmp_path / "elsewhere").read_text() == "as before"
    put_answer(Verifier(check_id="v"), "nowhere", Workspace(work))
    assert [path.name for path in work.iterdir()] == ["solution.py"]
