#!/usr/bin/env python3
"""A stand-in for a container engine: it understands the calls that agentbench makes, and isolates nothing.

    program = installed(tmp_path / "engine", {"localhost/agentbench-openclaw:2026.9.6": folder_of_programs})

A container is a folder with a note of how it was made. Commands run on this machine as its own user, with the image's
folder of programs first on their PATH; paths of mounts (/workspace, /tmp, ...) in their arguments and their environment
are replaced by those of the folders that are mounted. What runs is known by variables in its environment: what a
command leaves behind is killed at its end, and all of a container by `stop` and `rm`. Limits, users and networks are
none of its business.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import fcntl
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

_CONTAINER, _COMMAND = "STUB_ENGINE_CONTAINER", "STUB_ENGINE_COMMAND"
_FAILED = 125
_KILL_SECONDS = 10.0


def installed(folder: Path, images: Mapping[str, Path]) -> str:
    """The path of an engine's program with containers of its own. An image is its name, and a folder of programs."""
    (folder / "containers").mkdir(parents=True)
    (folder / "images.json").write_text(json.dumps({name: str(programs) for name, programs in images.items()}))
    program = folder / "engine"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -I -S "{Path(__file__).resolve()}" "{folder}" "$@"\n')
    program.chmod(0o755)
    return str(program)


def main(folder: Path, arguments: list[str]) -> int:
    args = _parser().parse_args(arguments)
    try:
        return _Engine(folder).call(args)
    except _Refused as refused:
        print(f"Error: {refused}", file=sys.stderr)
        return _FAILED


class _Refused(Exception):
    """What an engine would not do, with the reason."""


class _Engine:
    def __init__(self, folder: Path) -> None:
        self._containers = folder / "containers"
        self._images: dict[str, str] = json.loads((folder / "images.json").read_text())

    def call(self, args: argparse.Namespace) -> int:
        function = getattr(self, f"_{args.call}")
        return int(function(args) or 0)

    def _version(self, args: argparse.Namespace) -> None:
        print("Client: stub engine 1")

    def _image(self, args: argparse.Namespace) -> None:
        if args.name not in self._images:
            raise _Refused(f"no such image: {args.name}")
        print(f"sha256:{_digest(args.name)} null")

    def _pull(self, args: argparse.Namespace) -> None:
        raise _Refused(f"{args.name}: nothing can be pulled")

    def _run(self, args: argparse.Namespace) -> None:
        if args.image not in self._images:
            raise _Refused(f"no such image: {args.image}")
        mounts = {}
        for line in csv.reader(args.mount):
            fields = _pairs(line)
            if not os.path.exists(fields["source"]):
                raise _Refused(f"{fields['source']}: no such file or directory")
            mounts[fields["target"]] = fields["source"]
        folder = self._containers / args.name
        try:
            folder.mkdir()
        except FileExistsError:
            raise _Refused(f"the name {args.name} is in use") from None
        made = {
            "id": _digest(args.name),
            "image": args.image,
            "labels": _pairs(args.label),
            "environment": _pairs(args.env),
            "workdir": args.workdir,
            "mounts": mounts,
        }
        (folder / "made.json").write_text(json.dumps(made))
        (folder / "running").touch()
        print(made["id"])

    def _exec(self, args: argparse.Namespace) -> int:
        folder = self._folder(args.name)
        made = json.loads((folder / "made.json").read_text())
        inside = _Inside(made["mounts"])
        environment = {name: inside.path(text) for name, text in (made["environment"] | _pairs(args.env)).items()}
        programs = [self._images[made["image"]], os.path.dirname(sys.executable), "/usr/local/bin", "/usr/bin", "/bin"]
        environment |= {"PATH": os.pathsep.join(programs), _CONTAINER: str(folder), _COMMAND: str(os.getpid())}
        with _locked(folder):
            if not (folder / "running").exists():
                raise _Refused(f"container {args.name} is not running")
            command = subprocess.Popen(
                [inside.path(text) for text in args.argv],
                cwd=inside.path(made["workdir"]),
                env=environment,
                stdin=None if args.interactive else subprocess.DEVNULL,
                start_new_session=True,
            )
        code = command.wait()
        _kill_all(f"{_COMMAND}={os.getpid()}")
        return code if code >= 0 else 128 - code

    def _stop(self, args: argparse.Namespace) -> None:
        folder = self._folder(args.name)
        with _locked(folder):
            self._end(folder)

    def _restart(self, args: argparse.Namespace) -> None:
        folder = self._folder(args.name)
        with _locked(folder):
            self._end(folder)
            (folder / "running").touch()

    def _rm(self, args: argparse.Namespace) -> None:
        with contextlib.suppress(_Refused):
            folder = self._folder(args.name)
            with _locked(folder):
                self._end(folder)
                shutil.rmtree(folder)

    def _ps(self, args: argparse.Namespace) -> None:
        wanted = _pairs([args.filter.removeprefix("label=")] if args.filter else [])
        for made in sorted(self._containers.glob("*/made.json")):
            found = json.loads(made.read_text())
            if wanted.items() <= found["labels"].items():
                print(found["id"])

    def _inspect(self, args: argparse.Namespace) -> None:
        made = json.loads((self._folder(args.name) / "made.json").read_text())
        if label := re.fullmatch(r'\{\{index \.Config\.Labels "(.+)"\}\}', args.format):
            print(made["labels"].get(label[1], "<no value>"))
        elif args.format == "{{.State.Pid}} {{.Id}}":
            print(0, made["id"])
        else:
            raise _Refused(f"unknown format: {args.format}")

    def _folder(self, name: str) -> Path:
        """Of the container with that name or id."""
        for folder in self._containers.iterdir():
            if name in (folder.name, _digest(folder.name)):
                return folder
        raise _Refused(f"no such container: {name}")

    def _end(self, folder: Path) -> None:
        (folder / "running").unlink(missing_ok=True)
        _kill_all(f"{_CONTAINER}={folder}")


class _Inside:
    """A container's view of files: where its paths lie on this machine."""

    def __init__(self, mounts: dict[str, str]) -> None:
        self._mounts = mounts
        targets = "|".join(re.escape(target) for target in sorted(mounts, key=len, reverse=True))
        self._pattern = re.compile(rf"(?<![\w./-])({targets})(?![\w.-])")

    def path(self, text: str) -> str:
        """The text with all such paths in it replaced."""
        return self._pattern.sub(lambda found: self._mounts[found[1]], text)


def _kill_all(mark: str) -> None:
    """Kill until nothing is left that has the mark in its environment."""
    until = time.monotonic() + _KILL_SECONDS
    while pids := list(_marked(mark.encode())):
        if time.monotonic() > until:
            raise _Refused(f"could not kill {pids}")
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.005)


def _marked(mark: bytes) -> Iterator[int]:
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            environment = Path(f"/proc/{name}/environ").read_bytes()
        except OSError:  # it ended meanwhile, or is another user's
            continue
        if mark in environment.split(b"\0"):
            yield int(name)


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """No other call starts or ends anything in the container meanwhile."""
    try:
        opened = os.open(folder, os.O_RDONLY)
    except FileNotFoundError:
        raise _Refused(f"no such container: {folder.name}") from None
    try:
        fcntl.flock(opened, fcntl.LOCK_EX)
        yield
    finally:
        os.close(opened)


def _digest(name: str) -> str:
    return hashlib.sha256(name.encode()).hexdigest()


def _pairs(given: list[str]) -> dict[str, str]:
    return dict(text.partition("=")[::2] for text in given)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    calls = parser.add_subparsers(dest="call", required=True)

    def call(name: str, *positional: str, flags: str = "", values: str = "", lists: str = "") -> Any:
        made = calls.add_parser(name, allow_abbrev=False)
        for each in flags.split():
            made.add_argument(f"--{each}", action="store_true")
        for each in values.split():
            made.add_argument(f"--{each}")
        for each in lists.split():
            made.add_argument(f"--{each}", action="append", default=[])
        for each in positional:
            made.add_argument(each)
        return made

    call("version")
    call("image", "verb", "name", values="format")
    call("pull", "name", flags="quiet")
    run = call(
        "run",
        "image",
        flags="detach read-only no-healthcheck",
        values="name pull user workdir network log-driver cap-drop ipc stop-signal memory memory-swap cpus pids-limit "
        "entrypoint",
        lists="security-opt ulimit label env mount tmpfs",
    )
    run.add_argument("argv", nargs=argparse.REMAINDER)
    call("exec", "name", flags="interactive", values="user", lists="env").add_argument("argv", nargs=argparse.REMAINDER)
    for each in ("stop", "restart"):
        call(each, "name").add_argument("-t")
    call("rm", "name", flags="force volumes")
    call("ps", flags="all quiet no-trunc", values="filter")
    call("inspect", "name", values="format")
    return parser


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:]))
