#!/usr/bin/env python3
"""A stand-in for podman: its service understands the requests of agentbench, and isolates nothing.

    program = installed(tmp_path / "engine", {"localhost/agentbench-openclaw:2026.9.6": folder_of_programs})

A container is a folder with a record of its creation. Commands run on this machine as its own user, with the image's
folder of programs first on their PATH. Paths of mounts (/workspace, /tmp, ...) in their arguments and their environment
are replaced by the paths of the mounted folders. Processes are recognised by variables in their environment: those of a
command are killed at its end, and all of a container by `kill` and `rm`. Limits, users and networks are ignored.

The program and all of its services share the engine's folder. Its file `pulls` lists the requested pulls. With a file
`unfiltered`, containers are listed with any labels; with `slow-start`, no start of a container ends; and a file
`said.json` replaces parts of its answers about containers.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import hashlib
import http.server
import json
import os
import re
import select
import shutil
import signal
import socket
import socketserver
import subprocess
import sys
import threading
import time
import urllib.parse
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

_CONTAINER, _COMMAND = "STUB_ENGINE_CONTAINER", "STUB_ENGINE_COMMAND"
_FAILED = 125
_KILL_SECONDS = 10.0


def installed(folder: Path, images: Mapping[str, Path]) -> str:
    """Return the path of an engine's program with its own containers. `images` are folders of programs by name."""
    (folder / "containers").mkdir(parents=True)
    (folder / "images.json").write_text(json.dumps({name: str(programs) for name, programs in images.items()}))
    program = folder / "engine"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -I -S "{Path(__file__).resolve()}" "{folder}" "$@"\n')
    program.chmod(0o755)
    return str(program)


def main(folder: Path, arguments: list[str]) -> int:
    engine = _Engine(folder)
    args = _parser().parse_args(arguments)
    try:
        if args.version or args.call == "version":
            print("podman version 0, a stub")
        elif args.call == "system":
            _serve(engine, args.address.removeprefix("unix://"))
        elif args.call == "run":
            engine.create(args.name, {"Image": args.image})
        elif args.call == "rm":
            with contextlib.suppress(_Refused):
                engine.remove(args.name)
        elif args.call == "ps":
            for made in engine.containers({}):
                print(made["Id"])
        else:
            label = re.fullmatch(r'\{\{index \.Config\.Labels "(.+)"\}\}', args.format)
            assert label is not None
            print(engine.made(args.name)["Labels"].get(label[1], "<no value>"))
    except _Refused as refused:
        print(f"Error: {refused}", file=sys.stderr)
        return _FAILED
    return 0


class _Refused(Exception):
    """A refusal of the engine, with the reason and the HTTP status."""

    def __init__(self, reason: str, status: int = 500) -> None:
        super().__init__(reason)
        self.status = status


class _Engine:
    def __init__(self, folder: Path) -> None:
        self._folder, self._containers = folder, folder / "containers"
        self._images: dict[str, str] = json.loads((folder / "images.json").read_text())
        self._execs: dict[str, dict[str, Any]] = {}

    def image(self, name: str) -> dict[str, Any]:
        for each in self._images:
            if name in (each, f"sha256:{_digest(each)}"):
                return {"Id": f"sha256:{_digest(each)}", "RepoTags": [each], "Config": {"Labels": None}}
        raise _Refused(f"no such image: {name}", 404)

    def pull(self, name: str) -> None:
        with (self._folder / "pulls").open("a") as pulls:
            pulls.write(f"{name}\n")
        raise _Refused(f"{name}: nothing can be pulled")

    def create(self, name: str, asked: dict[str, Any]) -> str:
        host = asked.get("HostConfig") or {}
        for bind in host.get("Binds") or ():
            if not os.path.exists(source := bind.split(":")[0]):
                raise _Refused(f"{source}: no such file or directory")
        made = {"Id": _digest(name), "Labels": {}, "Env": [], **asked, "HostConfig": host}
        made["Image"] = self.image(asked["Image"])["RepoTags"][0]
        folder = self._containers / name
        try:
            folder.mkdir()
        except FileExistsError:
            raise _Refused(f"the name {name} is in use", 409) from None
        (folder / "new.json").write_text(json.dumps(made))
        os.replace(folder / "new.json", folder / "made.json")
        return str(made["Id"])

    def made(self, name: str) -> dict[str, Any]:
        made: dict[str, Any] = json.loads((self._found(name) / "made.json").read_text())
        return made

    def inspected(self, name: str) -> dict[str, Any]:
        made = self.made(name)
        said: dict[str, Any] = {
            "Id": made["Id"],
            "State": {"Pid": 0},
            "HostConfig": made["HostConfig"],
            "Config": {key: made[key] for key in ("Env", "Labels", "User")},
            "Mounts": [],
        }
        if (lies := self._folder / "said.json").exists():
            for part, found in json.loads(lies.read_text()).items():
                said[part] = said[part] | found if isinstance(found, dict) else found
        return said

    def containers(self, labels: Mapping[str, str]) -> Iterator[dict[str, Any]]:
        if (self._folder / "unfiltered").exists():
            labels = {}
        for note in sorted(self._containers.glob("*/made.json")):
            made = json.loads(note.read_text())
            if labels.items() <= made["Labels"].items():
                yield made

    def start(self, name: str) -> None:
        (self._found(name) / "running").touch()
        while (self._folder / "slow-start").exists():
            time.sleep(0.01)

    def kill(self, name: str) -> None:
        folder = self._found(name)
        with _locked(folder):
            if not (folder / "running").exists():
                raise _Refused(f"container {name} is not running", 409)
            self._end(folder)

    def restart(self, name: str) -> None:
        folder = self._found(name)
        with _locked(folder):
            self._end(folder)
            (folder / "running").touch()

    def remove(self, name: str) -> None:
        folder = self._found(name)
        with _locked(folder):
            self._end(folder)
            shutil.rmtree(folder)

    def create_exec(self, name: str, asked: dict[str, Any]) -> str:
        self.made(name)
        exec_id = os.urandom(16).hex()
        self._execs[exec_id] = {"container": name, **asked}
        return exec_id

    def run(self, exec_id: str, connection: socket.socket) -> None:
        """Run the created command, with the connection as its streams."""
        asked = self._execs.pop(exec_id)
        folder = self._found(asked["container"])
        made = json.loads((folder / "made.json").read_text())
        binds = (bind.split(":") for bind in made["HostConfig"].get("Binds") or ())
        inside = _Inside({target: source for source, target, _ in binds})
        given = dict(text.partition("=")[::2] for text in [*made["Env"], *(asked.get("Env") or ())])
        environment = {name: inside.path(text) for name, text in given.items()}
        programs = [self._images[made["Image"]], os.path.dirname(sys.executable), "/usr/local/bin", "/usr/bin", "/bin"]
        mark = {"PATH": os.pathsep.join(programs), _CONTAINER: str(folder), _COMMAND: exec_id}
        with _locked(folder):
            if not (folder / "running").exists():
                raise _Refused(f"container {asked['container']} is not running", 409)
            command = subprocess.Popen(
                [inside.path(text) for text in asked["Cmd"]],
                cwd=inside.path(made["WorkingDir"]),
                env=environment | mark,
                stdin=subprocess.PIPE if asked["AttachStdin"] else subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
        connection.sendall(b"HTTP/1.1 101 UPGRADED\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n")
        with command:
            threading.Thread(target=_feed, args=(connection, command), daemon=True).start()
            ended = threading.Thread(target=_bury, args=(command, f"{_COMMAND}={exec_id}"), daemon=True)
            ended.start()
            _carry(command, connection)
            ended.join()

    def _found(self, name: str) -> Path:
        """Return the container with that name or id."""
        for folder in self._containers.iterdir():
            if name in (folder.name, _digest(folder.name)):
                return folder
        raise _Refused(f"no such container: {name}", 404)

    def _end(self, folder: Path) -> None:
        (folder / "running").unlink(missing_ok=True)
        _kill_all(f"{_CONTAINER}={folder}")


def _feed(connection: socket.socket, command: subprocess.Popen[bytes]) -> None:
    """Copy the connection to the command, to the end of either."""
    with contextlib.suppress(OSError, ValueError):
        while (piece := connection.recv(2**16)) and command.stdin is not None:
            command.stdin.write(piece)
            command.stdin.flush()
    with contextlib.suppress(OSError):
        if command.stdin is not None:
            command.stdin.close()


def _bury(command: subprocess.Popen[bytes], mark: str) -> None:
    """Wait for the command, and kill the processes that it left, because they keep its streams open."""
    command.wait()
    with contextlib.suppress(_Refused):
        _kill_all(mark)


def _carry(command: subprocess.Popen[bytes], connection: socket.socket) -> None:
    """Copy the output of the command in frames, to its end; the client may be gone."""
    assert command.stdout is not None
    assert command.stderr is not None
    numbers = {command.stdout.fileno(): 1, command.stderr.fileno(): 2}
    while numbers:
        for fd in select.select([*numbers], [], [])[0]:
            piece = os.read(fd, 2**16)
            if piece:
                with contextlib.suppress(OSError):
                    connection.sendall(bytes([numbers[fd], 0, 0, 0]) + len(piece).to_bytes(4, "big") + piece)
            else:
                del numbers[fd]


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    engine: _Engine

    def do_GET(self) -> None:
        self._answer()

    do_POST = do_DELETE = do_GET

    def address_string(self) -> str:
        return "a socket"

    def log_message(self, format: str, *args: object) -> None:
        pass

    def _answer(self) -> None:
        url = urllib.parse.urlsplit(self.path)
        query = dict(urllib.parse.parse_qsl(url.query))
        asked = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or b"{}")
        parts = [urllib.parse.unquote(each) for each in re.sub(r"^/v[\d.]+", "", url.path).strip("/").split("/")]
        try:
            if parts[0] == "exec":
                self.close_connection = True
                self.engine.run(parts[1], self.connection)
                return
            status, found = self._done(parts, query, asked)
        except _Refused as refused:
            status, found = refused.status, {"message": str(refused)}
        body = b"" if found is None else json.dumps(found).encode()
        self.send_response(status)
        self.send_header("Api-Version", "1.41")
        self.send_header("Libpod-Api-Version", "0.0.0")
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _done(self, parts: list[str], query: dict[str, str], asked: dict[str, Any]) -> tuple[int, Any]:
        engine = self.engine
        if parts[0] == "images":
            if parts[1] == "create":
                engine.pull(f"{query['fromImage']}:{query['tag']}")
            return 200, engine.image("/".join(parts[1:-1]))
        if parts[0] in ("networks", "volumes"):
            return 200, [] if parts[0] == "networks" else {"Volumes": []}
        if parts[0] != "containers":
            return 200, {"NCPU": os.cpu_count(), "Rootless": False} if parts[0] == "info" else "OK"
        if parts[1] == "create":
            return 201, {"Id": engine.create(query["name"], asked)}
        if parts[1] == "json":
            labels = dict(text.partition("=")[::2] for text in json.loads(query.get("filters", "{}")).get("label", []))
            return 200, list(engine.containers(labels))
        name, verb = parts[1], parts[2] if len(parts) > 2 else "remove"
        if verb == "json":
            return 200, engine.inspected(name)
        if verb == "exec":
            return 201, {"Id": engine.create_exec(name, asked)}
        {"start": engine.start, "kill": engine.kill, "restart": engine.restart, "remove": engine.remove}[verb](name)
        return 204, None


class _Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True
    request_queue_size = 128


def _serve(engine: _Engine, path: str) -> None:
    handler = type("_HandlerOfOne", (_Handler,), {"engine": engine})
    with _Server(path, handler) as server:
        server.serve_forever()


class _Inside:
    """The paths in a container, and their places on this machine."""

    def __init__(self, mounts: dict[str, str]) -> None:
        self._mounts = mounts
        targets = "|".join(re.escape(target) for target in sorted(mounts, key=len, reverse=True))
        self._pattern = re.compile(rf"(?<![\w./-])({targets})(?![\w.-])")

    def path(self, text: str) -> str:
        """Return the text with all paths of the container replaced."""
        return self._pattern.sub(lambda found: self._mounts[found[1]], text)


def _kill_all(mark: str) -> None:
    """Kill processes until none has the mark in its environment."""
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
            while not environment and _is_starting(name):
                time.sleep(0.001)
                environment = Path(f"/proc/{name}/environ").read_bytes()
        except OSError:  # it ended meanwhile, or is another user's
            continue
        if mark in environment.split(b"\0"):
            yield int(name)


def _is_starting(pid: str) -> bool:
    """Return whether the process is in `execve`: it has a program, and neither arguments nor an environment yet.

    Raises OSError for a process without a program: one of the kernel, or one that has ended.
    """
    os.readlink(f"/proc/{pid}/exe")
    return not Path(f"/proc/{pid}/cmdline").read_bytes()


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Exclude other calls that start or end processes in the container."""
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


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--version", action="store_true")
    calls = parser.add_subparsers(dest="call")
    calls.add_parser("version")
    system = calls.add_parser("system", allow_abbrev=False)
    system.add_argument("verb", choices=["service"])
    system.add_argument("--time", choices=["0"], required=True)
    system.add_argument("address")
    run = calls.add_parser("run", allow_abbrev=False)
    run.add_argument("--detach", action="store_true")
    run.add_argument("--name")
    run.add_argument("image")
    for name, flags in (("rm", ["--force"]), ("ps", ["--all", "--quiet", "--no-trunc"]), ("inspect", [])):
        made = calls.add_parser(name, allow_abbrev=False)
        for each in flags:
            made.add_argument(each, action="store_true")
        if name != "ps":
            made.add_argument("name")
        if name == "inspect":
            made.add_argument("--format", required=True)
    return parser


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:]))
