"""The lines that were measured: kept per commit in `results/`, and in the tables of docs/performance.md.

To make the tables anew, of the newest record: `python benchmarks/record.py`.
"""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"
PAGE = ROOT / "docs" / "performance.md"
WORSE = 1.15
"""So many times as much as in the last record is worse; less is how a machine differs from one hour to the next."""

_MEASURED = re.compile(r"(?P<begin><!-- measured: (?P<names>[\w ]+) -->\n).*?(?P<end><!-- end -->)", re.DOTALL)
_NOT_MEASURED = "Not measured yet: `python benchmarks/check.py --record`."
_TIMES = ("s", "ms", "µs")


@dataclass(frozen=True)
class Line:
    """What one thing costs. `against` names the peer; `disk` is the file system that both wrote to."""

    name: str
    ours: float
    unit: str
    peer: float | None = None
    against: str = ""
    target: float | None = None
    disk: str = ""

    @property
    def ratio(self) -> float | None:
        """Ours, in peers."""
        return None if self.peer is None else self.ours / self.peer

    @property
    def judged(self) -> float:
        """What the target is about, and what records are compared by: the ratio, without a peer the figure itself."""
        return self.ours if self.ratio is None else self.ratio

    @property
    def met(self) -> bool | None:
        """Whether the target is met; None where nothing is promised."""
        return None if self.target is None else self.judged <= self.target

    def is_worse_than(self, last: Line) -> bool:
        """Return whether it takes more than in an earlier record; of seconds without a peer it cannot be said."""
        if self.peer is None and self.unit in _TIMES:
            return False
        return self.judged > WORSE * last.judged

    def as_json(self) -> dict[str, Any]:
        """Return the fields, with what follows from them, in four digits."""
        fields = asdict(self) | {"ratio": self.ratio, "met": self.met}
        return {name: float(f"{value:.4g}") if isinstance(value, float) else value for name, value in fields.items()}


@dataclass(frozen=True)
class Record:
    """What a commit costs: lines by part. `modified`: the package was not quite that commit's."""

    commit: str
    committed: str
    modified: bool
    machine: Mapping[str, str | int]
    rounds: int
    parts: Mapping[str, Sequence[Line]] = field(default_factory=dict)

    @property
    def path(self) -> Path:
        """Its file's name."""
        return Path(f"{self.committed[:10]}-{self.commit}.json")

    def with_part(self, name: str, lines: Sequence[Line]) -> Record:
        """Return the record with these lines in place of the part's."""
        return replace(self, parts={**self.parts, name: lines})

    def write(self, folder: Path) -> None:
        """Write the file."""
        folder.mkdir(exist_ok=True)
        parts = {name: [line.as_json() for line in lines] for name, lines in self.parts.items()}
        text = json.dumps({**vars(self), "parts": parts}, indent=1, ensure_ascii=False)
        (folder / self.path).write_text(text + "\n", encoding="utf-8")


def read_record(path: Path) -> Record:
    """Return the record of a file."""
    fields = json.loads(path.read_text(encoding="utf-8"))
    parts = {
        name: [Line(**{key: line[key] for key in Line.__dataclass_fields__}) for line in lines]
        for name, lines in fields["parts"].items()
    }
    return Record(**{**fields, "parts": parts})


def newest_record(folder: Path, *, but: str | None = None) -> Record | None:
    """Return the record of the latest commit, or None; `but` is a commit that does not count."""
    records = [record for record in map(read_record, folder.glob("*.json")) if record.commit != but]
    return max(records, key=lambda record: record.committed, default=None)


def record_of_this_commit(folder: Path, rounds: int) -> Record:
    """Return the record that HEAD has, or a new one without lines. The machine is this one."""
    commit, seconds = _git("log", "-1", "--format=%h %ct").split()
    committed = datetime.fromtimestamp(int(seconds), UTC).isoformat()
    modified = bool(_git("status", "--porcelain", "--", "pytest_agentbench"))
    fresh = Record(commit, committed, modified, describe_machine(), rounds)
    if not (folder / fresh.path).exists():
        return fresh
    kept = read_record(folder / fresh.path)
    return replace(fresh, modified=modified or kept.modified, rounds=min(rounds, kept.rounds), parts=kept.parts)


def _git(*arguments: str) -> str:
    return subprocess.run(("git", *arguments), cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()


def describe_machine() -> dict[str, str | int]:
    """Return what figures depend on, without names of hosts or paths."""
    python = f"{platform.python_implementation()} {platform.python_version()}"
    packages = {name: version(name) for name in ("pytest", "openai")}
    return {"python": python, "system": f"{platform.system()} {platform.machine()}", "cores": _cores(), **packages}


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def table(lines: Iterable[Line]) -> str:
    """Return the lines as Markdown."""
    made = ["| scenario | ours | peer | ratio | target | met | files on |", "|---|---:|---:|---:|---:|---|---|"]
    for line in lines:
        peer = "" if line.peer is None else f"{_digits(line.peer)} {line.unit} ({line.against})"
        ratio = "" if line.ratio is None else f"{line.ratio:.2f}"
        target = "" if line.target is None else f"≤ {line.target:g} {line.unit if line.peer is None else '×'}"
        met = {None: "", True: "yes", False: "**no**"}[line.met]
        ours = f"{_digits(line.ours)} {line.unit}"
        made.append(f"| {line.name} | {ours} | {peer} | {ratio} | {target} | {met} | {line.disk} |")
    return "\n".join(made)


def _digits(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def fill_page(page: str, record: Record | None) -> str:
    """Return the page with the tables of a record.

    `<!-- measured: PART... -->` to `<!-- end -->` holds the lines of those parts, `measured: machine` what they are of.
    """

    def fill(match: re.Match[str]) -> str:
        return f"{match['begin']}\n{_shown(match['names'].split(), record)}\n\n{match['end']}"

    return _MEASURED.sub(fill, page)


def _shown(names: Sequence[str], record: Record | None) -> str:
    if record is None:
        return _NOT_MEASURED
    if names == ["machine"]:
        return _describe(record)
    lines = [line for name in names for line in record.parts.get(name, ())]
    return table(lines) if lines else _NOT_MEASURED


def _describe(record: Record) -> str:
    machine = record.machine
    commit = f"Commit {record.commit} of {record.committed[:10]}{', modified' if record.modified else ''}"
    packages = f"{machine['python']}, pytest {machine['pytest']}, openai {machine['openai']}"
    return f"{commit}: {packages}, {machine['system']}, {machine['cores']} cores; medians of {record.rounds}."


def renew_page(record: Record | None) -> None:
    """Write the tables of docs/performance.md."""
    PAGE.write_text(fill_page(PAGE.read_text(encoding="utf-8"), record), encoding="utf-8")


if __name__ == "__main__":
    renew_page(newest_record(RESULTS))
