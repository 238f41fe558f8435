"""Find test ids of a verifier that match no test: mistakes of the case, independent of the agent.

Most ids are decided by reading the tests, without running anything. Other ids, such as those with parameters, are
compared with the tests that pytest collects in a sandbox from the initial workspace. The agent influences neither, so
it cannot turn its failure into a mistake of the case.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any, Literal, NamedTuple

from pytest_agentbench.bounded.files import MAX_TEXT, read_file
from pytest_agentbench.checks.verifying.verifiers import is_named, normalize_test_id
from pytest_agentbench.errors import SandboxError
from pytest_agentbench.records.case import Case, HiddenFile, PytestTests, Verifier

Decision = Literal["exists", "missing", "undecided"]

_FIELDS = ("fail_to_pass", "pass_to_pass", "tests")
_MOST_COMPARED = 2_000
"""Maximum number of ids that are searched for the nearest one."""
_MOST_FILES = 200
_UNITTEST = re.compile(r"(\w+) \(([\w.]+)\)")
"""How unittest names a test: `test_a (tests.test_m.TestM)`."""
_OF_TESTS = frozenset({"pytest", "unittest"})
_Function = ast.FunctionDef | ast.AsyncFunctionDef


class Collected(NamedTuple):
    """Tests that pytest collected without the agent's work, and the files and folders that it could not collect."""

    tests: tuple[str, ...]
    uncollected: tuple[str, ...]


class TestSource:
    """Source of a test file: the tests that it defines, and the names that their parameters depend on."""

    __test__ = False

    def __init__(self, tree: ast.Module) -> None:
        self._tree = tree

    @cached_property
    def functions(self) -> Mapping[str, _Function]:
        """Return the functions by their path in the file, `Class::function`, wherever they are defined."""
        return dict(_functions(self._tree.body))

    @cached_property
    def _names(self) -> frozenset[str]:
        """Return every name that the file binds or imports; `*` if it imports all names of a module."""
        nodes = list(ast.walk(self._tree))
        names = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
        names |= {node.name for node in nodes if isinstance(node, _Function | ast.ClassDef)}
        imports = [node for node in nodes if isinstance(node, ast.Import | ast.ImportFrom)]
        return frozenset(names | {alias.asname or alias.name for node in imports for alias in node.names})

    def decide(self, path: str) -> Decision:
        """Return whether the file has the test of a path such as `Class::function[parameters]`."""
        name, bracket, _ = path.partition("[")
        *classes, last = name.split("::")
        if name in self.functions:
            if not last.startswith("test") or not all(class_name.startswith("Test") for class_name in classes):
                return "undecided"  # pytest may be configured to collect it
            # Parameters that come from the solution may be there only once the agent has done its work
            if not bracket or self._depends_on_solution(self.functions[name]):
                return "exists"
            return "undecided"
        if self._names & {last, "*"} or classes:
            return "undecided"
        return "missing"

    def _depends_on_solution(self, function: _Function) -> bool:
        """Return whether the parameters of a test may come from a module that is neither Python's nor pytest's."""
        foreign, meanings = self._meanings
        todo, seen = [*_parameter_names(function)], set[str]()
        while todo:
            name = todo.pop()
            if name in foreign or name == "pytest_generate_tests":
                return True
            if name not in seen:
                seen.add(name)
                todo += meanings.get(name, ())
        return False

    @cached_property
    def _meanings(self) -> tuple[frozenset[str], Mapping[str, list[str]]]:
        """Return the names that come from foreign modules, and for each other name those that its value uses."""
        foreign, meanings = set[str](), dict[str, list[str]]()
        for node in ast.walk(self._tree):
            if isinstance(node, ast.ImportFrom) and (node.level or not _is_of_python(node.module or "")):
                foreign |= {alias.asname or alias.name for alias in node.names}
            elif isinstance(node, ast.Import):
                foreign |= {
                    (alias.asname or alias.name).partition(".")[0]
                    for alias in node.names
                    if not _is_of_python(alias.name)
                }
            elif isinstance(node, ast.Assign):
                for target in node.targets:
                    if isinstance(target, ast.Name):
                        meanings.setdefault(target.id, []).extend(_loaded(node.value))
            elif isinstance(node, _Function):
                # Includes parameters of fixtures, and the helpers called to make parameters.
                meanings.setdefault(node.name, []).extend([*_parameter_names(node), *_loaded(node)])
        return frozenset(foreign), meanings


def _functions(body: Sequence[ast.stmt], prefix: str = "") -> Iterator[tuple[str, _Function]]:
    for node in body:
        if isinstance(node, _Function):
            yield prefix + node.name, node
        elif isinstance(node, ast.ClassDef):
            yield from _functions(node.body, f"{prefix}{node.name}::")
        else:
            for name in ("body", "orelse", "finalbody"):
                yield from _functions(getattr(node, name, ()), prefix)


def _parameter_names(function: _Function) -> Iterator[str]:
    """Yield the names in the decorators of a test and of its fixtures."""
    for decorator in function.decorator_list:
        yield from _loaded(decorator)
    yield from (argument.arg for argument in function.args.args)


def _loaded(node: ast.AST) -> Iterator[str]:
    return (name.id for name in ast.walk(node) if isinstance(name, ast.Name) and isinstance(name.ctx, ast.Load))


def _is_of_python(module: str) -> bool:
    top = module.partition(".")[0]
    return top in sys.stdlib_module_names or top in _OF_TESTS


def decide_ids(case: Case, verifier: Verifier, ids: Collection[str]) -> Mapping[str, Decision]:
    """Return for each id whether the verifier has such a test, if its source decides that."""
    return {test_id: _decide(case, verifier, normalize_test_id(test_id)) for test_id in ids}


def _decide(case: Case, verifier: Verifier, test_id: str) -> Decision:
    path, _, name = test_id.partition("::")
    of_agent = [*verifier.keep, *filter(None, [verifier.answer_file])]
    if any(is_named(path, normalize_test_id(written)) for written in of_agent):
        return "exists"
    source = _source_of(case, verifier, path)
    if source is None:
        return "missing"
    if not name:
        return "exists"
    read = _read(source)
    if read is None:
        return "undecided"
    return read.decide(name)


def _source_of(case: Case, verifier: Verifier, path: str) -> Path | str | None:
    """Return the case's file or folder, or the text, that is at a path when the tests run, or None."""
    hidden = {normalize_test_id(file.target): file for file in verifier.files}
    around = [target for target in hidden if path == target or path.startswith(f"{target}/")]
    if around:
        target = max(around, key=len)
        hidden_file = hidden[target]
        if hidden_file.source is None:
            if path == target:
                return hidden_file.text
            return None
        if (source := hidden_file.source / path[len(target) + 1 :]).exists():
            return source
    if any(target.startswith(f"{path}/") for target in hidden):
        return case.path.parent  # a folder, made for the hidden file
    # A hidden folder takes the place of the template's
    if around or case.workspace is None or not (case.workspace / path).exists():
        return None
    return case.workspace / path


def _read(source: Path | str) -> TestSource | None:
    """Return a test file, None for a file that is no Python that can be read."""
    try:
        return TestSource(ast.parse(source if isinstance(source, str) else read_file(source, MAX_TEXT)))
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def decide_collected(test_id: str, collected: Collected) -> Decision:
    """Return whether pytest collected a test of the id. A file that needs the solution to be collected decides nothing.

    Only for ids that reading the tests has left undecided.
    """
    name = normalize_test_id(test_id)
    path = name.partition("::")[0]
    if any(is_named(test, name) for test in collected.tests):
        return "exists"
    if any(where == "" or is_named(path, where.partition("::")[0]) for where in collected.uncollected):
        return "undecided"
    return "missing"


def describe_missing(selection: PytestTests, missing: Iterable[str], tests: Collection[str]) -> list[str]:
    """Return a sentence for each missing id, with the nearest of the `tests` that there are."""
    sentences = []
    for test_id in missing:
        field = next(field for field in _FIELDS if test_id in getattr(selection, field))
        nearest = _find_nearest(normalize_test_id(test_id), tests)
        sentence = f"pytest.{field}: found {test_id!r}, which the tests do not have"
        if nearest is not None:
            sentence += f"; did you mean {nearest!r}?"
        sentences.append(sentence)
    return sentences


def _find_nearest(test_id: str, tests: Collection[str]) -> str | None:
    """Return the test that was probably meant: of the same function if there are such, else the most similar id."""
    path, _, name = test_id.partition("::")
    function = name.partition("[")[0].rpartition("::")[2]
    if (unittest := _UNITTEST.fullmatch(test_id)) is not None:
        function = unittest[1]
        dotted = unittest[2].removesuffix(f".{function}").split(".")
        test_id = f"{'/'.join(dotted)}.py::{function}"
    functions = {test.partition("[")[0] for test in tests}
    names = [*functions, *tests] if "[" not in name else list(tests)
    alike = [each for each in names if function and each.partition("[")[0].rpartition("::")[2] == function]
    if unittest is not None and alike:
        return min(alike, key=len)
    same_file = [each for each in names if each.partition("::")[0] == path]
    for candidates in filter(None, (alike, same_file, names)):
        close = get_close_matches(test_id, islice(sorted(candidates), _MOST_COMPARED), n=1, cutoff=0.6)
        if close:
            return close[0]
    return None


def list_tests(case: Case, verifier: Verifier) -> list[str]:
    """Return the ids of the tests that the verifier's files define, without parameters."""
    names: dict[str, None] = {}
    for path, source in islice(_test_files(case, verifier), _MOST_FILES):
        if (module := _read(source)) is not None:
            tests = (name for name in module.functions if name.rpartition("::")[2].startswith("test"))
            names |= {f"{path}::{name}": None for name in tests}
    return list(names)


def _test_files(case: Case, verifier: Verifier) -> Iterator[tuple[str, Path | str]]:
    """Yield the verifier's test files by path: hidden files, and files of the template that it names."""
    for hidden in verifier.files:
        target = normalize_test_id(hidden.target)
        if hidden.source is None or not hidden.source.is_dir():
            if is_test_file(target):
                yield target, hidden.text if hidden.source is None else hidden.source
            continue
        for source in sorted(hidden.source.rglob("*.py")):
            if is_test_file(source.name):
                yield f"{target}/{source.relative_to(hidden.source).as_posix()}", source
    assert verifier.pytest is not None
    for path in dict.fromkeys(normalize_test_id(test_id).partition("::")[0] for test_id in verifier.pytest.ids):
        named = _source_of(case, verifier, path)
        if isinstance(named, str) or (named is not None and named.is_file()):
            yield path, named


def holds_tests(hidden: HiddenFile) -> bool:
    """Return whether pytest can collect a hidden file or folder."""
    return is_test_file(hidden.target) or (hidden.source is not None and hidden.source.is_dir())


def is_test_file(path: str) -> bool:
    """Return whether pytest collects a file of that name from a folder."""
    name = path.rpartition("/")[2]
    return name.endswith(".py") and (name.startswith("test_") or name.endswith("_test.py"))


def collected_of(reply: Mapping[str, Any]) -> Collected:
    """Return the tests that the driver collected. Raises SandboxError if its reply lacks them."""
    if reply["stopped"] is not None:
        raise SandboxError(f"collecting the tests was stopped: {reply['stopped']}")
    if not reply["loaded"] or reply["ended"] is None:
        raise SandboxError("pytest cannot collect the tests in the sandbox")
    return Collected(tuple(reply["tests"]), tuple(where for where, _ in reply["problems"]))
