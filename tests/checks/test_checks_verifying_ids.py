"""Test ids without a test are mistakes of the case, unless the solution brings the test."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.verifier_bench import GOOD, VerifierBench, open_bench

from pytest_agentbench.checks.verifying.named_tests import (
    Collected,
    TestSource,
    decide_collected,
    decide_ids,
    describe_missing,
    list_tests,
)
from pytest_agentbench.checks.verifying.run import find_wrong_ids
from pytest_agentbench.records.case import Case, PytestTests, RunnerSpec, Verifier

REPORTED = Path(__file__).parents[3] / "shared" / "data" / "reports" / "verify_ids"
SOURCE = """
import math
import pytest
from solution import CASES, Base
from pytest import mark

OWN = [1, 2]
THEIRS = sorted(CASES)

def values():
    return THEIRS

def test_plain(): ...

async def test_async(): ...

if math.pi > 3:
    def test_below_if(): ...

@pytest.mark.parametrize("a", [1, 2])
def test_literal(a): ...

@mark.parametrize("a", OWN)
def test_own(a): ...

@pytest.mark.parametrize("a", CASES)
def test_theirs(a): ...

@pytest.mark.parametrize("a", THEIRS)
def test_derived(a): ...

@pytest.mark.parametrize("a", values())
def test_called(a): ...

@pytest.fixture(params=CASES)
def their_fixture(request): ...

def test_by_fixture(their_fixture): ...

def helper(): ...

test_made = helper

class TestIt:
    def test_method(self): ...
    class TestInner:
        def test_deep(self): ...

class Other:
    def test_uncollected(self): ...

class TestInherits(Base): ...
"""


@pytest.mark.parametrize(
    ("path", "decision"),
    [
        ("test_plain", "exists"),
        ("test_async", "exists"),
        ("test_below_if", "exists"),
        ("test_literal", "exists"),
        ("TestIt::test_method", "exists"),
        ("TestIt::TestInner::test_deep", "exists"),
        ("test_gone", "missing"),
        ("test_plain2", "missing"),
        ("test_gone[1]", "missing"),
        ("test_literal[1]", "undecided"),
        ("test_own[1]", "undecided"),
        ("test_plain[1]", "undecided"),
        ("test_theirs[1]", "exists"),
        ("test_derived[1]", "exists"),
        ("test_called[1]", "exists"),
        ("test_by_fixture[1]", "exists"),
        ("test_made", "undecided"),
        ("helper", "undecided"),
        ("Other::test_uncollected", "undecided"),
        ("TestInherits::test_inherited", "undecided"),
        ("TestIt::test_gone", "undecided"),
        ("test_method", "missing"),
    ],
)
def test_reading_a_file_decides_whether_it_has_a_test(path: str, decision: str) -> None:
    source = SOURCE if path != "test_method" else "class TestIt:\n    pass\n"
    assert TestSource(ast.parse(source)).decide(path) == decision


def test_a_file_that_imports_all_names_of_a_module_decides_nothing() -> None:
    assert TestSource(ast.parse("from tests_of_all import *\n")).decide("test_gone") == "undecided"


COLLECTED = Collected(("t/a.py::test_a[x y]", "t/a.py::test_a[z]", "t/b.py::TestB::test_b"), ("t/broken.py", "deep"))


@pytest.mark.parametrize(
    ("test_id", "decision"),
    [
        ("t/a.py::test_a", "exists"),
        ("t/a.py::test_a[z]", "exists"),
        ("./t//a.py::test_a[x y]", "exists"),
        ("t/b.py::TestB", "exists"),
        ("t/a.py::test_a[x", "missing"),
        ("t/b.py::TestB::test_a", "missing"),
        ("t/broken.py::test_a", "undecided"),
        ("deep/c.py::test_c", "undecided"),
        ("deeper/c.py::test_c", "missing"),
    ],
)
def test_collected_ids_decide_whether_a_test_exists(test_id: str, decision: str) -> None:
    assert decide_collected(test_id, COLLECTED) == decision


def test_a_problem_of_the_whole_collection_decides_nothing() -> None:
    assert decide_collected("t/a.py::test_gone", Collected(("t/a.py::test_a",), ("",))) == "undecided"


TESTS = [
    *("tests/test_m.py::test_echo[a b]", "tests/test_m.py::test_echo[log(photon /s)]", "tests/test_m.py::test_plain"),
    *("tests/test_m.py::TestM::test_inner", "tests/test_other.py::test_echo"),
]


@pytest.mark.parametrize(
    ("test_id", "nearest"),
    [
        ("tests/test_m.py::test_echo[log(photon", "tests/test_m.py::test_echo[log(photon /s)]"),
        ("tests/test_m.py::test_echo[ab]", "tests/test_m.py::test_echo[a b]"),
        ("tests/test_m.py::test_plane", "tests/test_m.py::test_plain"),
        ("tests/test_n.py::test_plain", "tests/test_m.py::test_plain"),
        ("test_m.py::test_inner", "tests/test_m.py::TestM::test_inner"),
        ("test_plain (tests.test_m)", "tests/test_m.py::test_plain"),
        ("test_inner (tests.test_m.TestM)", "tests/test_m.py::TestM::test_inner"),
        ("test_inner (tests.test_m.TestM.test_inner)", "tests/test_m.py::TestM::test_inner"),
        ("nothing/like::it", None),
    ],
)
def test_the_nearest_id_is_named(test_id: str, nearest: str | None) -> None:
    [sentence] = describe_missing(PytestTests(pass_to_pass=(test_id,)), [test_id], TESTS)
    hint = "" if nearest is None else f"; did you mean {nearest!r}?"
    assert sentence == f"pytest.pass_to_pass: found {test_id!r}, which the tests do not have{hint}"


@pytest.mark.parametrize("written", ["t.py::test_a ", "\tt.py::test_a\n", "t.py::test_a"])
def test_blanks_around_an_id_are_no_part_of_it(written: str) -> None:
    assert PytestTests(fail_to_pass=(written,), tests=("t.py::test_b[x ]",)).ids == ("t.py::test_a", "t.py::test_b[x ]")


def make_case(
    folder: Path, sources: dict[str, str], workspace: str | None = None, text: str = "", **fields: Any
) -> Case:
    """Return a case with hidden files; those without a source hold the text."""
    files = [
        {"target": target, "source": folder / source} if source else {"target": target, "text": text}
        for target, source in sources.items()
    ]
    verifier = {"check_id": "verify", "files": files, **fields}
    return Case(
        case_id="c",
        title="C",
        path=folder / "test.yaml",
        runner=RunnerSpec(type="llm_probe"),
        workspace=None if workspace is None else folder / workspace,
        verify=(Verifier.model_validate(verifier),),
    )


def write(folder: Path, **files: str) -> None:
    for path, text in files.items():
        file = folder / path.replace("__", "/")
        file.parent.mkdir(parents=True, exist_ok=True)
        Path(f"{file}.py").write_text(text)


def test_a_test_file_is_looked_up_at_its_place_during_the_tests(tmp_path: Path) -> None:
    write(tmp_path, verify__test_a="def test_a(): ...", more__test_b="def test_b(): ...", w__tests__test_old="")
    write(tmp_path, w__u__test_c="def test_c(): ...")
    files = {"tests": "verify", "tests/more/test_b.py": "more/test_b.py"}
    exists = ["tests", "tests/test_a.py::test_a", "tests/more", "tests/more/test_b.py::test_b", "u/test_c.py::test_c"]
    missing = ["tests/test_old.py", "tests/test_b.py::test_b", "u/test_d.py", "test_a (tests.test_a)"]
    wanted = {"tests": [*exists, *missing, "own/test_own.py::test_own"]}
    case = make_case(tmp_path, files, "w", pytest=wanted, keep=["own"])
    decided = decide_ids(case, case.verify[0], wanted["tests"])
    assert [each for each, decision in decided.items() if decision == "missing"] == missing
    assert {decision for each, decision in decided.items() if each not in missing} == {"exists"}
    assert list_tests(case, case.verify[0]) == [
        *("tests/test_a.py::test_a", "tests/more/test_b.py::test_b", "u/test_c.py::test_c"),
    ]


def test_hidden_files_may_be_texts_of_a_row(tmp_path: Path) -> None:
    files, text = {"tests/test_row.py": ""}, "def test_row(): ...\n"
    ids = [
        "tests/test_row.py::test_row",
        "tests",
        "answer.py::test_own",
        "tests/test_row.py::test_ro",
        "tests/test_row",
    ]
    case = make_case(tmp_path, files, text=text, answer_file="answer.py", pytest={"tests": ids})
    assert [*decide_ids(case, case.verify[0], ids).values()] == ["exists"] * 3 + ["missing"] * 2
    assert list_tests(case, case.verify[0]) == ids[:1]


@pytest.mark.parametrize("content", ["def test_a(:", "x = '\0'", "(" * 9_000])
def test_a_file_that_cannot_be_read_decides_nothing(tmp_path: Path, content: str) -> None:
    write(tmp_path, test_a=content)
    case = make_case(tmp_path, {"test_a.py": "test_a.py"}, pytest={"tests": ["test_a.py::test_b"]})
    assert decide_ids(case, case.verify[0], ["test_a.py::test_b"]) == {"test_a.py::test_b": "undecided"}


WRONG = {
    "dottedname": "tests/test_m.py::test_echo",
    "missing": "tests/test_m.py::test_echo",
    "trailmiss": "tests/test_m.py::test_echo[tail ]",
    "trailspace": None,
    "trunc": "tests/test_m.py::test_echo[log(photon /s)]",
}
"""The reported cases and the id that each error names."""


@pytest.mark.skipif(not REPORTED.is_dir(), reason="the reported files are not here")
@pytest.mark.parametrize("name", WRONG)
def test_the_reported_cases_are_decided(name: str) -> None:
    folder = REPORTED / name
    wanted = yaml.safe_load((folder / "test.yaml").read_text())["verify"]["pytest"]
    case = make_case(folder, {"tests": "verify/tests"}, "workspace", pytest=wanted)
    parameters = ("a b", "log(photon /s)", "x[0]", "tail ", "\\xe9", "", "a::b")
    tests = [*(f"tests/test_m.py::test_echo[{each}]" for each in parameters), "tests/test_m.py::test_plain"]
    verifier = case.verify[0]
    assert verifier.pytest is not None
    decided = dict(decide_ids(case, verifier, verifier.pytest.ids))
    for test_id, decision in decided.items():
        if decision == "undecided":
            decided[test_id] = decide_collected(test_id, Collected(tuple(tests), ()))
    missing = [test_id for test_id, decision in decided.items() if decision == "missing"]
    sentences = describe_missing(verifier.pytest, missing, tests)
    assert len(sentences) == (WRONG[name] is not None)
    assert all(sentence.endswith(f"did you mean {WRONG[name]!r}?") for sentence in sentences)


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[VerifierBench]:
    yield from open_bench("local", tmp_path)


PARAMETERS = """
import pytest
from solution import median

@pytest.mark.parametrize("values", [[5], [5, 5]], ids=["one", "two "])
def test_same(values):
    assert median(values) == 5
"""


@pytest.mark.slow
@pytest.mark.parametrize("apart", [False, True], ids=["beside", "apart"])
def test_a_wrong_id_is_an_error_of_the_case_for_any_solution(bench: VerifierBench, apart: bool) -> None:
    text = PARAMETERS
    if apart:
        text = text.replace("from solution import median", "from agentbench_solution import Solution")
        text = text.replace("median(values)", "Solution().call('solution:median', values)")
    (bench.folder / "template").mkdir()
    (bench.folder / "template" / "solution.py").write_text("median = None\n")
    bench.template = bench.folder / "template"
    wrong = {"tests": (), "fail_to_pass": ["tests/test_hidden.py::test_same[two]"]}
    for left in (GOOD, "import os\nos._exit(0)\n"):
        bench.left({"solution.py": left})
        result = bench.tests(text, pytest=wrong, apart=apart)
        assert result.outcome == "error"
        assert result.message == (
            "the case is wrong: pytest.fail_to_pass: found 'tests/test_hidden.py::test_same[two]', which the tests do "
            "not have; did you mean 'tests/test_hidden.py::test_same[two ]'?"
        )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("left", "template"),
    [
        ("", None),
        ("import os\nos._exit(0)\n", None),
        ("raise ImportError\n", "def other(): ...\n"),
        ("median = 1\n", "def other(): ...\n"),
    ],
)
def test_an_id_that_only_the_solution_brings_is_the_agents_failure(
    bench: VerifierBench, left: str, template: str | None
) -> None:
    if template is not None:
        bench.template = bench.folder / "template"
        bench.template.mkdir()
        (bench.template / "solution.py").write_text(template)
    bench.left({"solution.py": left})
    ids = ["tests/test_hidden.py::test_same[one]", "tests/test_hidden.py::test_same[gone]"]
    result = bench.tests(PARAMETERS, pytest={"tests": (), "fail_to_pass": ids})
    assert result.outcome == "failed"  # nobody can tell whether `gone` is there once the module can be imported


@pytest.mark.slow
def test_a_sandbox_that_cannot_collect_leaves_the_ids_undecided(bench: VerifierBench) -> None:
    write(bench.folder, verify__test_a="import pytest\n@pytest.mark.parametrize('a', [1])\ndef test_a(a): ...\n")
    wanted = {"tests": ["test_a.py::test_a[2]"], "plugins": ["no_such_plugin"]}
    case = make_case(bench.folder, {"test_a.py": "verify/test_a.py"}, pytest=wanted)
    with pytest.raises(Exception, match="pytest cannot collect the tests in the sandbox"):
        bench.runner.run(find_wrong_ids(case, case.verify[0], bench.sandboxes, bench.spec, wanted["tests"]))
