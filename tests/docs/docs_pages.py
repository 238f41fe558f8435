"""Markdown pages as programs: files to write, commands to run, and what they are to print.

A page is one project in an empty folder, its blocks in order:

- `<!-- file: PATH -->` before a fenced block writes the block to that file;
- `<!-- folder: PATH -->`: the blocks after it are for this folder of the project, which an earlier block has made;
- `<!-- serve: PATH -->` serves the scripts below PATH as an endpoint; OPENAI_BASE_URL names it from then on;
- a `console` block runs its `$ ` lines in one shell. The lines after a command are lines of its output, in order; `...`
  stands for anything, within a line or as whole lines. A command that fails needs `$ echo $?` after it;
- `<!-- needs: NAME... -->` before a console block leaves it out where one of these is not there: `bubblewrap`,
  `docker`, the images of `openclaw` and of agents by the names of their adapters, and `sdks`, in whose environment it
  is then run;
- the image `my-image:1` in a file is the tests' own;
- `<!-- ci: NAME -->` before a block lets `.ci/run` run its commands in a clone or next to it; a console block is run
  here too, where `pip` and `uv` install nothing;
- a `text` block is for reading only. No other block may stand free.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from support.agents_here import agent_lacks
from support.docker_here import IMAGE, bubblewrap_lacks, docker_lacks
from support.openclaw_here import openclaw_lacks

_BLOCK = re.compile(
    r"(?:^<!-- (?P<what>file|folder|serve|ci|needs)(?:: (?P<argument>[^>]+?))? -->\n)?"
    r"(?:\n?^```(?P<language>\w*)\n(?P<text>.*?)^```$)?",
    re.MULTILINE | re.DOTALL,
)
_SECRET = re.compile(r"KEY|TOKEN|SECRET|PASSWORD|^OPENAI|^AGENTBENCH|^PYTEST|^COV|^GITHUB|^CI$", re.IGNORECASE)
_TIMES = re.compile(r"\b\d+(?:\.\d+)? ?m?s\b")
_MARK = "\x1e"
_SDKS = "AGENTBENCH_TEST_SDKS"
_LACKS = {
    "bubblewrap": bubblewrap_lacks,
    "docker": docker_lacks,
    "openclaw": openclaw_lacks,
    "sdks": lambda: None if _SDKS in os.environ else f"{_SDKS} names no environment with SDKs",
}
HOME = "/home/me/bench"
"""What stands in a page for the folder that it is run in."""


@dataclass(frozen=True)
class Block:
    """A fenced block, or a directive alone. `line` is the page's, from 1."""

    line: int
    what: str | None
    argument: str | None
    language: str | None
    text: str


@dataclass(frozen=True)
class Command:
    """A command of a console block with the lines that the page shows of its output."""

    text: str
    shown: tuple[str, ...]


def blocks(page: str) -> Iterator[Block]:
    """The page's blocks and directives in order."""
    for match in _BLOCK.finditer(page):
        if match.group():
            line = page.count("\n", 0, match.start()) + 1
            yield Block(line, match["what"], match["argument"], match["language"], match["text"] or "")


def commands(console: str) -> list[Command]:
    """The commands of a console block. A line that ends in a backslash goes on in the next."""
    found: list[list[str]] = []
    for line in console.splitlines():
        if line.startswith("$ "):
            found.append([line[2:]])
        elif found[-1][-1].endswith("\\"):
            found[-1][-1] += "\n" + line
        else:
            found[-1].append(line)
    return [Command(lines[0], tuple(lines[1:])) for lines in found]


def mismatch(shown: tuple[str, ...], output: str) -> str | None:
    """The first shown line that the output lacks, None where all come in their order."""
    lines = iter([_plain(line) for line in output.splitlines()])
    for line in shown:
        wanted = _plain(line)
        if wanted in ("", "..."):
            continue
        pattern = re.compile(".*".join(map(re.escape, wanted.split("..."))))
        if not any(pattern.fullmatch(each) for each in lines):
            return line
    return None


def _plain(line: str) -> str:
    line = _TIMES.sub("<time>", line)
    line = re.sub(r"={3,}", "===", re.sub(r"_{3,}", "___", line))
    return " ".join(line.split())


class Project:
    """A folder in which a page's blocks are run. Ends what it served when it is left."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.here = folder
        """The folder of the next blocks."""
        # Else the first sessions of a page with workers remove the 10,000 folders of an earlier session of tests
        self.environ = _environ() | {"PYTEST_DEBUG_TEMPROOT": str(folder.parent)}
        self.left_out: list[str] = []
        """Why blocks were not run."""
        self._servers: list[subprocess.Popen[str]] = []

    def __enter__(self) -> Project:
        return self

    def __exit__(self, *_: object) -> None:
        for server in self._servers:
            server.send_signal(signal.SIGINT)
            server.communicate(timeout=20)

    def write(self, path: str, text: str) -> None:
        """Write a file of the project."""
        file = self.here / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text.replace("my-image:1", IMAGE), encoding="utf-8")

    def serve(self, path: str) -> None:
        """Serve the scripts below `path`; commands reach them as the default endpoint."""
        command = ["agentbench", "serve", path, "--port", "0"]
        server = subprocess.Popen(command, cwd=self.here, env=self.environ, stdout=subprocess.PIPE, text=True)
        self._servers.append(server)
        assert server.stdout is not None
        base_url = server.stdout.readline().split()[1]
        self.environ |= {"OPENAI_BASE_URL": base_url, "OPENAI_API_KEY": "served-here"}

    def install(self) -> None:
        """Do what `pip install -e .` does for a pack: its entry points, and its modules on the path."""
        project = tomllib.loads((self.here / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        lines = [
            f"[{group}]\n" + "".join(f"{name} = {value}\n" for name, value in entries.items())
            for group, entries in project["entry-points"].items()
        ]
        self.write(f"{project['name']}-{project['version']}.dist-info/entry_points.txt", "".join(lines))
        self.environ["PYTHONPATH"] = str(self.here)

    def run(self, asked: list[Command]) -> list[tuple[str, int]]:
        """What each command printed, and its exit status."""
        # The environment is made already: `uv run X` is X
        script = ['uv() { shift; "$@"; }', "pip() { :; }"]
        for command in asked:
            script += [command.text, f"_status=$?; printf '{_MARK}%s{_MARK}' $_status; (exit $_status)"]
        done = subprocess.run(
            ["bash", "-c", "\n".join(script)],
            cwd=self.here,
            env=self.environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=900,
            check=False,
        )
        parts = done.stdout.replace(str(self.folder), HOME).split(_MARK)
        return list(zip(parts[0::2], map(int, parts[1::2]), strict=False))


def problems(page: str, project: Project) -> Iterator[str]:
    """Runs the page; a sentence for everything that is not as it says."""
    for block in blocks(page):
        if block.what == "folder":
            project.here = project.folder / (block.argument or "")
        if block.what == "serve":
            project.serve(block.argument or "")
        if block.what == "file":
            project.write(block.argument or "", block.text)
        elif block.what == "needs" and (reason := _lacks(block.argument or "")) is not None:
            project.left_out.append(f"line {block.line}: {reason}")
        elif block.language == "console":
            if block.what == "needs" and block.argument == "sdks":
                project.environ["PATH"] = f"{os.environ[_SDKS]}/bin{os.pathsep}{project.environ['PATH']}"
            yield from _console_problems(block, project)
        elif block.language not in (None, "text") and block.what != "ci":
            yield f"line {block.line}: a {block.language or 'plain'} block is neither run nor written to a file"


def _lacks(names: str) -> str | None:
    """Why the first of these that is not here is not; None where all are."""
    reasons = (_LACKS[name]() if name in _LACKS else agent_lacks(name) for name in names.split())
    return next((reason for reason in reasons if reason is not None), None)


def _console_problems(block: Block, project: Project) -> Iterator[str]:
    asked = commands(block.text)
    if any(command.text == "pip install -e ." for command in asked):
        project.install()
    for at, (command, (output, status)) in enumerate(zip(asked, project.run(asked), strict=True)):
        place = f"line {block.line}: $ {command.text}\n{output}"
        if (lacking := mismatch(command.shown, output)) is not None:
            yield f"{place}--- lacks: {lacking}"
        if status and not (at + 1 < len(asked) and asked[at + 1].text == "echo $?"):
            yield f"{place}--- exit status {status} is not shown"


def _environ() -> dict[str, str]:
    """Ours without keys and settings that would change what commands print."""
    kept = {name: value for name, value in os.environ.items() if not _SECRET.search(name)}
    programs = os.path.dirname(sys.executable)
    without = {"PYTEST_ADDOPTS": "-pno:hypothesispytest -pno:anyio -pno:timeout"}  # developers', which cost time
    terminal = {"COLUMNS": "80", "NO_COLOR": "1"}
    return kept | without | terminal | {"PATH": f"{programs}{os.pathsep}{kept.get('PATH', os.defpath)}"}
