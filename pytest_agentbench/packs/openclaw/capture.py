"""`agentbench openclaw capture WORKSPACE`: write an agent's folder from a live OpenClaw workspace."""

from __future__ import annotations

import argparse
import os
import re
import shlex
import stat
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_agentbench.packs.openclaw.live_config import CapturedAgent
    from pytest_agentbench.secrets.redaction import Redactor
    from pytest_agentbench.workspaces.workspace import Entry, Workspace


MAX_FILES = 1_000
MAX_BYTES = 64 * 2**20
"""The most that one agent's workspace may hold: each of its runs begins with a copy."""

_FOLDERS = {
    **dict.fromkeys((".git", ".hg", ".svn", ".jj"), "version control"),
    **dict.fromkeys(("node_modules", ".venv", "venv"), "installed packages"),
    **dict.fromkeys(("__pycache__", ".cache", ".pytest_cache", ".mypy_cache", ".ruff_cache"), "a cache"),
    ".openclaw": "OpenClaw's state",
}
_AT_THE_TOP = dict.fromkeys(("sessions", "state", "credentials"), "OpenClaw's state")
_KEY_FILES = (".env", ".env.*", ".npmrc", ".netrc", ".pypirc", "*.pem", "*.key", "id_*", "auth-profiles.json")
"""Names of files that hold keys. Other files are searched for some."""
# Examples and public keys only look like it.
_KEY_FILES_OF_NONE = ("*.example", "*.sample", "*.template", "*.pub", "id_*.*")
_MEMORY = "memory"


@dataclass
class CapturedFiles:
    """Files that were copied, and those that were not: (path, why)."""

    count: int = 0
    size: int = 0
    left_out: list[tuple[str, str]] = field(default_factory=list)
    with_keys: list[str] = field(default_factory=list)
    """Paths of files that hold a key, and were not copied."""


def capture_files(source: Workspace, target: Path, others: frozenset[str], redactor: Redactor) -> CapturedFiles:
    """Copy the regular files of `source` that belong to the agent into `target`, without those that hold a key.

    `others` are the ids of other agents. Raises ConfigError for more files than an agent's workspace may hold and for a
    workspace that cannot be looked into, OSError for a target that takes no more.
    """
    from pytest_agentbench.workspaces.confined import PathRefusedError

    captured = CapturedFiles()
    for path in _list_files(source, others, captured):
        try:
            content, is_program = _read(source, path)
        except PathRefusedError as error:
            captured.left_out.append((path, str(error).partition(": ")[2] or str(error)))
            continue
        except OSError as error:
            captured.left_out.append((path, f"cannot be read: {error.strerror}"))
            continue
        # A name may be a key itself; binary files are searched like texts, their bytes as characters.
        if _holds_key(f"{path}\n", redactor) or _holds_key(content.decode("utf-8", "surrogateescape"), redactor):
            captured.with_keys.append(redactor.text(path))
            continue
        captured.count += 1
        captured.size += len(content)
        # Before it is written: a live workspace may hold gigabytes.
        _check_limits(source, captured)
        _write(target / path, content, is_program)
    return captured


def _list_files(source: Workspace, others: frozenset[str], captured: CapturedFiles) -> Iterator[str]:
    """Yield the paths of files, sorted within each folder, and note the paths that are left out by name or kind."""
    from pytest_agentbench.errors import ConfigError
    from pytest_agentbench.workspaces.confined import PathRefusedError

    pending = [""]
    while pending:
        folder = pending.pop()
        try:
            entries = source.entries(folder)
        except (PathRefusedError, OSError) as error:
            told = f"cannot be looked into: {getattr(error, 'strerror', error)}"
            if not folder:
                raise ConfigError(f"{source.path}: {told}; call this as the user that OpenClaw runs as") from error
            captured.left_out.append((folder, told))
            continue
        for entry in entries:
            path = f"{folder}/{entry.name}" if folder else entry.name
            if (reason := _why_left_out(path, entry, others)) is not None:
                captured.left_out.append((path, reason))
            elif entry.kind == "folder":
                pending.append(path)
            else:
                yield path


def _why_left_out(path: str, entry: Entry, others: frozenset[str]) -> str | None:
    """Return why a file is left out regardless of its content, or None."""
    parent, _, name = path.rpartition("/")
    if not path.isprintable():
        return "its name is no plain text"
    if parent == _MEMORY and name.split(".")[0] in others:
        return "the memory of another agent"
    if entry.kind == "folder":
        return _FOLDERS.get(name) or (None if parent else _AT_THE_TOP.get(name))
    if entry.kind != "file":
        if entry.kind == "link":
            return "a link"
        return "no regular file"
    if _is_any(name, _KEY_FILES) and not _is_any(name, _KEY_FILES_OF_NONE):
        return "files of that name hold keys"
    if name == ".DS_Store" or name.endswith(".pyc"):
        return "not the agent's"
    return None


def _is_any(name: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatch(name, pattern) for pattern in patterns)


def _read(source: Workspace, path: str) -> tuple[bytes, bool]:
    """Return the file's content, and whether its owner may execute it. Raises PathRefusedError if it is too large."""
    from pytest_agentbench.workspaces.confined import MAX_FILE_BYTES, PathRefusedError

    with source.open_read(path) as file:
        content = file.read(MAX_FILE_BYTES + 1)
        if len(content) > MAX_FILE_BYTES:
            raise PathRefusedError(f"{path!r}: larger than {MAX_FILE_BYTES // 2**20} MB")
        return content, bool(os.fstat(file.fileno()).st_mode & stat.S_IXUSR)


def _holds_key(text: str, redactor: Redactor) -> bool:
    return redactor.text(text) != text


def _check_limits(source: Workspace, captured: CapturedFiles) -> None:
    from pytest_agentbench.errors import ConfigError

    if captured.count > MAX_FILES or captured.size > MAX_BYTES:
        found = f"{MAX_FILES:,} files" if captured.count > MAX_FILES else f"{MAX_BYTES // 2**20} MB"
        raise ConfigError(
            f"{source.path}: found more than {found}, the most that an agent's workspace may hold, as each run begins "
            "with a copy; capture a copy of the workspace without what the agent does not need"
        )


def _write(path: Path, content: bytes, is_program: bool) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    if is_program:
        path.chmod(0o755)


_CONFIG = "openclaw.json"
_OPENCLAWS_OWN = (_CONFIG, "state/openclaw.sqlite", "agents/*/agent", "agents/*/sessions")
"""OpenClaw's own folder contains one or more of these. Its configuration may be elsewhere."""
_SHOWN = 50


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command with its options."""
    parser = subparsers.add_parser(
        "capture",
        help="write an agent's folder from a live OpenClaw workspace",
        description="Write agents/ID/agent.yaml and workspace/ from a live OpenClaw workspace, which is only read. "
        "Links, large files, state, caches and whatever holds a key are left out and listed. Exit status 0: the agent "
        "is written; 1: it is not, or something that holds a key is missing from it; 2: wrong usage.",
    )
    parser.add_argument("workspace", type=Path, metavar="WORKSPACE", help="the live workspace: ~/.openclaw/workspace")
    parser.add_argument("--agent-id", type=_parse_agent_id, required=True, metavar="ID", help="the new agent's folder")
    parser.add_argument(
        "--config", type=Path, metavar="FILE", help=f"the live {_CONFIG} (default: the one beside WORKSPACE, if any)"
    )
    parser.add_argument(
        "--into", type=Path, default=Path("agents"), metavar="DIR", help="the folder of agents (default: %(default)s)"
    )
    parser.add_argument("--force", action="store_true", help="replace an agent that is there already")


def run(args: argparse.Namespace) -> int:
    """Write the agent, whole or not at all, and list its files and the omitted ones."""
    from pytest_agentbench.cli.places import require_existing
    from pytest_agentbench.packs.openclaw.live_config import choose_agent, list_secrets, make_captured_agent, read_live
    from pytest_agentbench.secrets.redaction import Redactor
    from pytest_agentbench.workspaces.workspace import Workspace

    (workspace,) = (path.resolve() for path in require_existing([args.workspace]))
    target = args.into.absolute() / args.agent_id
    config = _find_config(args.config, workspace)
    _check_places(workspace, config, target, args.force)
    redactor = Redactor()
    live, name, others = None, None, frozenset[str]()
    if config is not None:
        live = read_live(config)
        # Keys of openclaw.json are looked for in the workspace's files too.
        redactor.know_values(list_secrets(live))
        name = choose_agent(live, workspace, args.agent_id)
        others = frozenset(live.agents) - {name}
    agent = make_captured_agent(live, name, args.agent_id, redactor)
    with _replacing(target) as folder:
        (folder / "workspace").mkdir()
        files = capture_files(Workspace(workspace), folder / "workspace", others, redactor)
        _write_agent_file(agent, folder, target)
    _print_result(target, config, agent, files)
    if agent.with_keys or files.with_keys:
        return 1
    return 0


def _check_places(workspace: Path, config: Path | None, target: Path, force: bool) -> None:
    """Raise ConfigError if the source is not a workspace or the target exists already."""
    from pytest_agentbench.errors import ConfigError

    if not workspace.is_dir():
        raise ConfigError(f"{workspace}: found a file, expected the folder of a live workspace")
    if (own := next((path for pattern in _OPENCLAWS_OWN for path in workspace.glob(pattern)), None)) is not None:
        raise ConfigError(
            f"{workspace}: found {own.relative_to(workspace)} in it, so it is OpenClaw's own folder, with keys and "
            "sessions; expected an agent's workspace, such as workspace/ in it"
        )
    if os.path.isfile(target.parent):
        raise ConfigError(f"{target.parent}: found a file, expected the folder of agents; name one with --into")
    if target.resolve().is_relative_to(workspace):
        raise ConfigError(f"{target}: lies in the workspace itself; name another folder with --into")
    for live in filter(None, (workspace, config)):
        if live.resolve().is_relative_to(target.resolve()):
            raise ConfigError(f"{target}: would be replaced, and holds {live}, which is only read; name another --into")
    if os.path.lexists(target) and not force:
        raise ConfigError(f"{target}: exists already and is not replaced; use --force, or another --agent-id")


def _find_config(given: Path | None, workspace: Path) -> Path | None:
    from pytest_agentbench.cli.places import require_existing

    if given is not None:
        return require_existing([given])[0]
    beside = workspace.parent / _CONFIG
    if beside.is_file():
        return beside
    return None


@contextmanager
def _replacing(target: Path) -> Iterator[Path]:
    """Yield a folder that takes the target's place at the end of the block. Raises ConfigError where that fails."""
    from pytest_agentbench.errors import ConfigError

    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        # Two folders deep, where nothing looks for agents.
        with tempfile.TemporaryDirectory(prefix=".capture-", dir=target.parent) as temporary:
            folder, replaced = Path(temporary, target.name), Path(temporary, "replaced", target.name)
            folder.mkdir()
            yield folder
            if os.path.lexists(target):
                replaced.parent.mkdir()
                # A folder cannot be renamed over a non-empty one: the old one is moved aside first.
                target.rename(replaced)
            try:
                folder.rename(target)
            except OSError:
                if os.path.lexists(replaced):
                    replaced.rename(target)
                raise
    except OSError as error:
        raise ConfigError(f"{target}: cannot be written: {error.strerror or error}") from error


def _write_agent_file(agent: CapturedAgent, folder: Path, target: Path) -> None:
    """Write agent.yaml. Raises ConfigError if it could not be loaded again."""
    import yaml

    from pytest_agentbench.cli.schema import schema_line
    from pytest_agentbench.config.base import load
    from pytest_agentbench.errors import ConfigError
    from pytest_agentbench.packs.openclaw.config import AgentFile

    path = folder / "agent.yaml"
    text = yaml.safe_dump(agent.data, sort_keys=False, allow_unicode=True, width=120)
    path.write_text(schema_line("agent", target / path.name) + text, encoding="utf-8")
    try:
        # As a session will read it: a live configuration has fields that agents refuse.
        load(path, AgentFile)
    except ConfigError as error:
        found = str(error).replace(str(folder), str(target))
        raise ConfigError(f"{found}\nnothing is written: change that in a copy of {_CONFIG}, and name it") from error


def _print_result(target: Path, config: Path | None, agent: CapturedAgent, files: CapturedFiles) -> None:
    count = f"{files.count:,} file{'' if files.count == 1 else 's'}"
    source = f"from {config}" if config is not None else f"without an {_CONFIG}: add the agent's prompt to it"
    print(f"{shlex.quote(os.path.relpath(target))} written: {count}, {files.size:,} bytes; agent.yaml {source}")
    _print_list("left out of workspace/", (f"{path}: {reason}" for path, reason in files.left_out))
    _print_list("left out of agent.yaml, as a run decides them", agent.left_out)
    print(f"read it, then name it in a run profile: openclaw: {{agent_id: {target.name}}}")
    sys.stdout.flush()
    with_keys = [*files.with_keys, *agent.with_keys]
    if with_keys:
        print("not written, as a key was found in it; take it out, then capture again with --force:", file=sys.stderr)
        for line in with_keys:
            print(f"  {line}", file=sys.stderr)


def _print_list(title: str, lines: Iterable[str]) -> None:
    from pytest_agentbench.cli.output import printable

    found = sorted(lines)
    if found:
        print(f"{title}:")
    for line in found[:_SHOWN]:
        print(f"  {printable(line)}")
    if len(found) > _SHOWN:
        print(f"  and {len(found) - _SHOWN:,} more")


def _parse_agent_id(text: str) -> str:
    if re.fullmatch("[a-z0-9][a-z0-9_-]{0,63}", text) is None:
        raise argparse.ArgumentTypeError(f"found {text!r}, expected lower-case letters, digits, '_' and '-'")
    return text
