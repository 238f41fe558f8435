"""Change arithmetic and decisions a little, one place at a time, and count what the fast tests notice.

`python benchmarks/mutation.py [--sample 200] [--seed 1] [--jobs 2] [--only GLOB ...] [--near] [--list] [--least 0.85]`

A mutant is the tree with one operator, constant, keyword, `return` or statement changed. For each mutant of a seeded
sample the tests of the mirrored folder run first, those named after the module at the head; only what they let live
meets the rest of the fast tier. Each job works on a copy of its own, so the tree itself is never touched. The exit
status is 1 where fewer than `--least` of the sample were noticed.

Neither mutmut nor cosmic-ray would do: one wraps every function, which agents' fingerprints and pluggy's signatures
see, and leaves constants of modules alone; the other knows one test command for all modules; neither draws a sample.
"""

from __future__ import annotations

import argparse
import ast
import fnmatch
import itertools
import multiprocessing
import os
import queue
import random
import re
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = "pytest_agentbench"

MODULES = {
    "statistics/**/*.py": "statistics reports",
    "checks/**/*.py": "checks",
    "records/run_turns.py": "checks/test_checks_turns.py",
    "metrics/**/*.py": "metrics",
    "store/**/*.py": "store cli/test_cli_store_pruning.py cli/test_cli_store_reading.py",
    "judging/**/*.py": "judging",
    "reports/{gate,judges,human_agreement}.py": "reports",
    "reports/comparison/{comparing,campaigns,intervals,results}.py": "reports",
    "packs/mcp_bench/{judge,grader,report,records,ablation}.py": "packs/mcp_bench",
    "packs/research/{arithmetic,scores,race,race_judging,interaction,efficiency,strategic,poet,knowledge}.py": (
        "packs/research"
    ),
    "packs/research/fact/{citations,rows}.py": "packs/research",
    "packs/research/business_report/aggregates.py": "packs/research",
}
"""Which modules are changed (a glob below the package), and the folders and files of `tests/` that mirror them.

What a glob or a name does not find is skipped; a module that two globs find belongs to the first.
"""

EQUIVALENT = (
    (
        r"\b(frozen|slots|kw_only|eq)=True.* -> (?!.*\1=True)",
        "how a record is declared: it guards authors, no run sees it",
    ),
    (
        r"\bstrict=True.* -> (?!.*strict=True)",
        "lists that are equally long by construction; the keyword guards authors",
    ),
    (r'encoding="utf-8".* -> (?!.*encoding="utf-8")', "what it is anyway on every machine that runs the tests"),
    (r"lru_cache\(|@cache", "how much is remembered changes no answer"),
    (r"stacklevel=", "which line a warning points at"),
    (
        r": _?[A-Z][A-Z_]* = [1-9][\d_]+(\.0)?( \* [\d_]+)*(  #.*)? ->",
        "a bound of ten or more: one more decides nothing",
    ),
    (r"\b(cpu_seconds|processes)=\d{2,}", "the same, of a sandbox"),
    (r"min\(2\.0, saving / expert_cost\)", "no cost is below 0, so no saving is more than the expert's cost"),
    (r"\bchange\.p_value or", "only changes that have a p value come there, and none of it is 0"),
    (r"order = ordered\[", "the runs of one judge have one order"),
    (r"(os\.close|timer\.cancel|selector\.unregister)\(.* -> pass$", "what is let go of: it goes with its process"),
)
"""Patterns of `path: line before -> line after`, each with the reason why nobody could tell the mutant's results."""

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(
    [
        *("numpy", "scipy.stats", "scipy.optimize", "openai", "pydantic", "jsonschema", "mcp"),
        *("statsmodels.api", "statsmodels.stats.inter_rater", "statsmodels.stats.multitest"),
    ]
)  # what tests import and mutants cannot change: each session is forked from a process that has it, 3 s saved

SWAPPED = {
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
    ast.Is: ("is", "is not"),
    ast.IsNot: ("is not", "is"),
    ast.In: ("in", "not in"),
    ast.NotIn: ("not in", "in"),
    ast.Add: ("+", "-"),
    ast.Sub: ("-", "+"),
    ast.Mult: ("*", "/"),
    ast.Div: ("/", "*"),
    ast.FloorDiv: ("//", "/"),
    ast.Mod: ("%", "*"),
    ast.Pow: ("**", "*"),
    ast.And: ("and", "or"),
    ast.Or: ("or", "and"),
}


@dataclass(frozen=True)
class Mutant:
    """The bytes from `start` to `end` of the file at `path`, relative to the root, become `text`."""

    path: str
    tests: str
    start: int
    end: int
    text: str
    source: bytes

    @property
    def changed(self) -> bytes:
        """Return the file's content with the change in it."""
        return self.source[: self.start] + self.text.encode() + self.source[self.end :]

    @property
    def line(self) -> int:
        """Return the number of the first changed line, from 1."""
        return self.source.count(b"\n", 0, self.start) + 1

    @property
    def before(self) -> str:
        """Return the line before the change."""
        return self.source.splitlines()[self.line - 1].decode().strip()

    @property
    def after(self) -> str:
        """Return the line after the change."""
        return self.changed.splitlines()[self.line - 1].decode().strip()

    @property
    def equivalent(self) -> bool:
        """Return whether a pattern of EQUIVALENT says that nobody can tell it from the original."""
        return any(re.search(pattern, f"{self.path}: {self.before} -> {self.after}") for pattern, _ in EQUIVALENT)


class Finder:
    """Finds every change of one file, as (start, end, text)."""

    def __init__(self, source: bytes) -> None:
        self.source = source
        self.starts = [0]
        for line in source.splitlines(keepends=True):
            self.starts.append(self.starts[-1] + len(line))

    def find(self, node: ast.AST) -> Iterator[tuple[int, int, str]]:
        """Yield the changes of a node and of those below it; annotations and what lies in f-strings are left alone."""
        yield from self._changes(node)
        for name, value in ast.iter_fields(node):
            if name in ("annotation", "returns"):
                continue
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST) and not isinstance(child, ast.JoinedStr):  # no true columns before 3.12
                    yield from self.find(child)

    def _changes(self, node: ast.AST) -> Iterator[tuple[int, int, str]]:
        match node:
            case ast.Compare(left=left, ops=ops, comparators=others):
                for first, operator, second in zip([left, *others], ops, others, strict=False):
                    yield self._swap(first, operator, second)
            case ast.BinOp(left=left, op=binary, right=right) if type(binary) in SWAPPED:
                yield self._swap(left, binary, right)
            case ast.BoolOp(op=boolean, values=values):
                for first, second in itertools.pairwise(values):
                    yield self._swap(first, boolean, second)
            case ast.UnaryOp(op=ast.Not()):
                start, _ = self._span(node)
                yield start, start + len("not "), ""
            case ast.Constant(value=bool() as truth):
                yield (*self._span(node), str(not truth))
            case ast.Constant(value=int() | float() as number):
                yield (*self._span(node), repr(number + 1))
                yield (*self._span(node), repr(number - 1))
            case ast.Call(func=called, keywords=keywords):
                if isinstance(called, ast.Name) and called.id in ("min", "max"):
                    yield (*self._span(called), "max" if called.id == "min" else "min")
                for keyword in keywords:
                    start, end = self._span(keyword)
                    comma = re.compile(rb"\s*,").match(self.source, end)
                    yield start, comma.end() if comma else end, ""
            case ast.Return(value=ast.expr() as value) if not isinstance(value, ast.Constant):
                yield (*self._span(value), "None")
            case ast.Raise() | ast.Expr(value=ast.Call() | ast.Await()):
                yield (*self._span(node), "pass")

    def _swap(self, first: ast.AST, operator: ast.AST, second: ast.AST) -> tuple[int, int, str]:
        """Return the change of the operator's word between its two sides."""
        before, after = SWAPPED[type(operator)]
        place = self.source.index(before.encode(), self._span(first)[1], self._span(second)[0])
        return place, place + len(before), after

    def _span(self, node: ast.AST) -> tuple[int, int]:
        start = self.starts[node.lineno - 1] + node.col_offset  # type: ignore[attr-defined]
        return start, self.starts[node.end_lineno - 1] + node.end_col_offset  # type: ignore[attr-defined]


def find_mutants(only: Sequence[str]) -> list[Mutant]:
    """Return the mutants of the table's modules, or of those that `only` names, without the equivalent ones."""
    tests: dict[Path, str] = {}
    for pattern, mirrored in MODULES.items():
        for path in sorted(each for glob in _expanded(pattern) for each in (ROOT / PACKAGE).glob(glob)):
            tests.setdefault(path, mirrored)
    found = []
    for path, mirrored in sorted(tests.items()):
        name, source = str(path.relative_to(ROOT)), path.read_bytes()
        if only and not any(fnmatch.fnmatch(name, f"*{pattern}*") for pattern in only):
            continue
        for start, end, text in dict.fromkeys(Finder(source).find(ast.parse(source))):
            found.append(Mutant(name, mirrored, start, end, text, source))
    return [mutant for mutant in found if not mutant.equivalent]


def _expanded(pattern: str) -> list[str]:
    """Return the globs that a pattern with `{a,b}` stands for."""
    before, brace, after = pattern.partition("{")
    if not brace:
        return [pattern]
    among, _, rest = after.partition("}")
    return [glob for each in among.split(",") for glob in _expanded(f"{before}{each}{rest}")]


class Tree:
    """A copy of the repository for one job; what lies in `../shared` lies beside it too."""

    def __init__(self, parent: Path) -> None:
        self.root = parent / "tree"
        shutil.copytree(ROOT, self.root, symlinks=True, ignore=shutil.ignore_patterns(".*", "__pycache__", "outputs"))
        if (ROOT.parent / "shared").is_dir():
            (parent / "shared").symlink_to(ROOT.parent / "shared")
        self.seconds: dict[str, float] = {}

    def killed_by(self, mutant: Mutant, near: bool) -> str | None:
        """Return which tests notice the mutant, or None. `near` asks those that mirror its module only."""
        mirror = [f"tests/{each}" for each in mutant.tests.split() if (self.root / "tests" / each).exists()]
        named, others = self._files(mutant, mirror)
        stages = [(named, mirror, mutant.tests), (others, mirror, mutant.tests)]
        if not near:
            stages.append((["tests", *(f"--ignore={each}" for each in mirror)], ["tests"], "the rest"))
        for arguments, whole, name in stages:
            if arguments and not self._passes_with(mutant, arguments, 60 + 4 * self._measured(whole)):
                return name
        return None

    def _files(self, mutant: Mutant, mirror: Sequence[str]) -> tuple[list[str], list[str]]:
        """Return the files of the mirror: those named after the module or importing it, and the others."""
        path = Path(mutant.path).with_suffix("")
        words, module = {*path.parts[2:]} - {"__init__"}, ".".join(path.parts)
        found: tuple[list[str], list[str]] = ([], [])
        for each in mirror:
            place = self.root / each
            for file in [place] if place.is_file() else sorted(place.rglob("test_*.py")):
                named = words & {*file.stem.split("_")} or module in file.read_text(encoding="utf-8")
                found[not named].append(str(file.relative_to(self.root)))
        return found

    def _measured(self, tests: Sequence[str]) -> float:
        """Return how many seconds such tests take where nothing is changed."""
        key = " ".join(tests)
        if key not in self.seconds:
            began = time.monotonic()
            if not self._passes(tests, 3600):
                raise SystemExit(f"without a change, these tests fail: {key}")
            self.seconds[key] = time.monotonic() - began
        return self.seconds[key]

    def _passes_with(self, mutant: Mutant, arguments: Sequence[str], seconds: float) -> bool:
        self._write(mutant, mutant.changed)
        try:
            return self._passes(arguments, seconds)
        finally:
            self._write(mutant, mutant.source)

    def _write(self, mutant: Mutant, content: bytes) -> None:
        path = self.root / mutant.path
        path.write_bytes(content)
        for compiled in (path.parent / "__pycache__").glob(f"{path.stem}.*.pyc"):
            compiled.unlink()  # a change of one character in the same second would go unnoticed

    def _passes(self, arguments: Sequence[str], seconds: float) -> bool:
        process = CONTEXT.Process(target=_run_pytest, args=(self.root, arguments))
        process.start()
        process.join(seconds)
        if process.exitcode is None:  # an endless loop is noticed
            os.killpg(process.pid, signal.SIGKILL)
            process.join()
        return process.exitcode == 0


def _run_pytest(root: Path, arguments: Sequence[str]) -> None:
    """Become a pytest session in the tree, with a process group of its own, that says nothing."""
    os.setsid()
    os.chdir(root)
    sys.path.insert(0, str(root))
    os.environ["PYTHONPATH"] = str(root)
    silence = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silence, 1)
    os.dup2(silence, 2)
    import pytest

    preloaded = "ignore:Module already imported so cannot be rewritten"
    sys.exit(pytest.main(["-x", "-q", "-p", "no:cacheprovider", "-W", preloaded, *arguments]))


def run_sample(sample: Sequence[Mutant], jobs: int, near: bool) -> list[Mutant]:
    """Return the survivors of a sample in its order, telling of each mutant as it is done."""
    trees: queue.SimpleQueue[Tree] = queue.SimpleQueue()
    survivors = []

    def work(mutant: Mutant) -> str | None:
        tree = trees.get()
        try:
            return tree.killed_by(mutant, near)
        finally:
            trees.put(tree)

    with tempfile.TemporaryDirectory(prefix="mutation-") as scratch, ThreadPoolExecutor(jobs) as pool:
        for job in range(jobs):
            (parent := Path(scratch) / str(job)).mkdir()
            trees.put(Tree(parent))
        for mutant, killer in zip(sample, pool.map(work, sample), strict=True):
            print(f"{f'killed by {killer}' if killer else 'SURVIVED':40} {mutant.path}:{mutant.line}", flush=True)
            if killer is None:
                survivors.append(mutant)
    return survivors


def main() -> None:
    """Draw the sample, run it and end with the exit status."""
    parser = argparse.ArgumentParser(description="Count the mutants that the fast tests notice.")
    parser.add_argument("--sample", type=int, default=200, help="how many mutants are drawn")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--only", action="append", default=[], metavar="GLOB", help="modules whose path has this in it")
    parser.add_argument("--near", action="store_true", help="mirrored folders only: quicker, and the rate is a floor")
    parser.add_argument("--list", action="store_true", help="show the sample and run nothing")
    parser.add_argument("--least", type=float, default=0.85, help="the kill rate that is asked for")
    options = parser.parse_args()
    mutants = find_mutants(options.only)
    sample = random.Random(options.seed).sample(mutants, min(options.sample, len(mutants)))
    modules = len({each.path for each in mutants})
    print(f"{len(sample)} of {len(mutants):,} mutants in {modules} modules, seed {options.seed}")
    survivors = sample if options.list else run_sample(sample, options.jobs, options.near)
    print(f"\n{len(survivors)} {'drawn' if options.list else 'survived'}:")
    for mutant in survivors:
        print(f"{mutant.path}:{mutant.line}\n    - {mutant.before}\n    + {mutant.after}")
    if not options.list:
        rate = 1 - len(survivors) / max(len(sample), 1)
        print(
            f"\n{len(sample) - len(survivors)} of {len(sample)} killed: {rate:.1%}, at least {options.least:.0%} wanted"
        )
        sys.exit(rate < options.least)


if __name__ == "__main__":
    main()
