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

from pytest_agentbench.cli.output import printable
from pytest_agentbench.errors import ConfigError
from pytest_agentbench.terminal_text import count_text
from pytest_agentbench.workspaces.confined import MAX_FILE_BYTES, PathRefusedError

if TYPE_CHECKING:
    from pytest_agentbench.packs.openclaw.live_config import CapturedAgent
    from pytest_agentbench.secrets.redaction import Redactor
    from pytest_agentbench.workspaces.workspace import Entry, Workspace


MAX_FILES = 1_000
MAX_BYTES = 64 * 2**20
"""Maximum files and bytes of an agent's workspace: each of its runs begins with a copy."""

_FOLDERS = {
    **dict.fromkeys((".git", ".hg", ".svn", ".jj"), "version control"),
    **dict.fromkeys(("node_modules", ".venv", "venv"), "installed packages"),
    **dict.fromkeys(("__pycache__", ".cache", ".pytest_cache", ".mypy_cache", ".ruff_cache"), "a cache"),
    ".openclaw": "OpenClaw's state",
}
_AT_THE_TOP = dict.fromkeys(("sessions", "state", "credentials"), "OpenClaw's state")
_KEY_FILES = (".env", ".env.*", ".npmrc", ".netrc", ".pypirc", "*.pem", "*.key", "id_*", "auth-profiles.json")
"""Names of files that contain keys. Other files are searched for keys."""
# Examples and public keys have similar names.
_KEYLESS_FILES = ("*.example", "*.sample", "*.template", "*.pub", "id_*.*")
_MEMORY = "memory"


@dataclass
class CapturedFiles:
    """Numbers of copied files and bytes, and the paths of omitted files, with the reason."""

    count: int = 0
    size: int = 0
    left_out: list[tuple[str, str]] = field(default_factory=list)
    with_keys: list[str] = field(default_factory=list)
    """Paths of files that contain a key, and were not copied."""


def capture_files(source: Workspace, target: Path, others: frozenset[str], redactor: Redactor) -> CapturedFiles:
    """Copy the agent's regular files from `source` to `target`, except files with a key.

    `others` are the ids of other agents. Raises ConfigError if there are too many files, or the workspace cannot be
    listed, OSError if the target cannot be written.
    """
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
        # A name may be a key, too. Binary files are searched like texts, with their bytes as characters.
        if _holds_key(f"{path}\n", redactor) or _holds_key(content.decode("utf-8", "surrogateescape"), redactor):
            captured.with_keys.append(redactor.text(path))
            continue
        captured.count += 1
        captured.size += len(content)
        # Checked before each file is written: a live workspace may have gigabytes.
        _check_limits(source, captured)
        _write(target / path, content, is_program)
    return captured


def _list_files(source: Workspace, others: frozenset[str], captured: CapturedFiles) -> Iterator[str]:
    """Yield the paths of files, sorted within each folder, and note the paths that are left out by name or kind."""
    pending = [""]
    while pending:
        folder = pending.pop()
        try:
            entries = source.entries(folder)
        except (PathRefusedError, OSError) as error:
            reason = f"cannot be looked into: {getattr(error, 'strerror', error)}"
            if not folder:
                raise ConfigError(f"{source.path}: {reason}; run this as the user of OpenClaw") from error
            captured.left_out.append((folder, reason))
            continue
        for entry in entries:
            path = os.path.join(folder, entry.name)
            if (cause := _why_left_out(path, entry, others)) is not None:
                captured.left_out.append((path, cause))
            elif entry.kind == "folder":
                pending.append(path)
            else:
                yield path


def _why_left_out(path: str, entry: Entry, others: frozenset[str]) -> str | None:
    """Return why a file is left out regardless of its content, or None."""
    parent, _, name = path.rpartition("/")
    if not path.isprintable():
        return "its name is not plain text"
    if parent == _MEMORY and name.split(".")[0] in others:
        return "the memory of another agent"
    if entry.kind == "folder":
        if not parent and name in _AT_THE_TOP:
            return _AT_THE_TOP[name]
        return _FOLDERS.get(name)
    if entry.kind == "link":
        return "a link"
    if entry.kind != "file":
        return "not a regular file"
    if _is_any(name, _KEY_FILES) and not _is_any(name, _KEYLESS_FILES):
        return "files of this name contain keys"
    if name == ".DS_Store" or name.endswith(".pyc"):
        return "not the agent's"
    return None


def _is_any(name: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatch(name, pattern) for pattern in patterns)


def _read(source: Workspace, path: str) -> tuple[bytes, bool]:
    """Return the file's content, and whether its owner may execute it. Raises PathRefusedError if it is too large."""
    with source.open_read(path) as file:
        # One byte more than allowed reveals a file that is too large, also one that grows meanwhile.
        content = file.read(MAX_FILE_BYTES + 1)
        if len(content) > MAX_FILE_BYTES:
            raise PathRefusedError(f"{path!r}: larger than {MAX_FILE_BYTES // 2**20} MB")
        return content, bool(os.fstat(file.fileno()).st_mode & stat.S_IXUSR)


def _holds_key(text: str, redactor: Redactor) -> bool:
    return redactor.text(text) != text


def _check_limits(source: Workspace, captured: CapturedFiles) -> None:
    if captured.count > MAX_FILES or captured.size > MAX_BYTES:
        limit = f"{MAX_FILES:,} files" if captured.count > MAX_FILES else f"{MAX_BYTES // 2**20} MB"
        raise ConfigError(
            f"{source.path}: found more than {limit}, the limit of an agent's workspace, because each run begins with "
            "a copy; capture a copy of the workspace with only the files that the agent needs"
        )


def _write(path: Path, content: bytes, is_program: bool) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    if is_program:
        path.chmod(0o755)


_CONFIG = "openclaw.json"
_OPENCLAWS_OWN = (_CONFIG, "state/openclaw.sqlite", "agents/*/agent", "agents/*/sessions")
"""Patterns of files in OpenClaw's own folder, of which it has at least one: its configuration may be elsewhere."""
_SHOWN = 50
"""Maximum lines of a list."""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command with its options."""
    parser = subparsers.add_parser(
        "capture",
        help="write an agent's folder from a live OpenClaw workspace",
        description="Write agents/ID/agent.yaml and workspace/ from a live OpenClaw workspace, which is only read. "
        "Links, large files, state, caches, and files and fields with a key are left out and listed. Exit status 0: "
        "the agent is written; 1: it is not, or a file or field with a key is missing from it; 2: wrong usage.",
    )
    parser.add_argument("workspace", type=Path, metavar="WORKSPACE", help="the live workspace: ~/.openclaw/workspace")
    parser.add_argument("--agent-id", type=_parse_agent_id, required=True, metavar="ID", help="the new agent's folder")
    parser.add_argument(
        "--config",
        type=Path,
        metavar="FILE",
        help=f"the live {_CONFIG} (default: the one next to WORKSPACE, if any)",
    )
    parser.add_argument(
        "--into", type=Path, default=Path("agents"), metavar="DIR", help="the folder of agents (default: %(default)s)"
    )
    parser.add_argument("--force", action="store_true", help="replace an existing agent")


def run(args: argparse.Namespace) -> int:
    """Write the whole agent or nothing, and list the omitted files and fields."""
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
        # The workspace's files may repeat keys of openclaw.json.
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
    if not workspace.is_dir():
        raise ConfigError(f"{workspace}: found a file, expected the folder of a live workspace")
    if (own := next((path for pattern in _OPENCLAWS_OWN for path in workspace.glob(pattern)), None)) is not None:
        raise ConfigError(
            f"{workspace}: found {own.relative_to(workspace)}, so this is OpenClaw's own folder, with keys and "
            "sessions; expected an agent's workspace, such as its subfolder workspace/"
        )
    if os.path.isfile(target.parent):
        raise ConfigError(f"{target.parent}: found a file, expected the folder of agents; name one with --into")
    if target.resolve().is_relative_to(workspace):
        raise ConfigError(f"{target}: is below the workspace; name another folder with --into")
    for live in filter(None, (workspace, config)):
        if live.resolve().is_relative_to(target.resolve()):
            raise ConfigError(f"{target}: would be replaced, but contains {live}; name another --into")
    if os.path.lexists(target) and not force:
        raise ConfigError(f"{target}: exists already and is not replaced; use --force, or another --agent-id")


def _find_config(option: Path | None, workspace: Path) -> Path | None:
    from pytest_agentbench.cli.places import require_existing

    if option is not None:
        return require_existing([option])[0]
    default = workspace.parent / _CONFIG
    if default.is_file():
        return default
    return None


@contextmanager
def _replacing(target: Path) -> Iterator[Path]:
    """Yield a folder that replaces the target at the end of the block. Raises ConfigError if it cannot."""
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        # Two folders deep: agents are searched for only one folder below `agents/`.
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
    from pytest_agentbench.packs.openclaw.config import AgentFile

    path = folder / "agent.yaml"
    text = yaml.safe_dump(agent.data, sort_keys=False, allow_unicode=True, width=120)
    path.write_text(schema_line("agent", target / path.name) + text, encoding="utf-8")
    try:
        # Load it as a session does: a live configuration may have fields that agents refuse.
        load(path, AgentFile)
    except ConfigError as error:
        problems = str(error).replace(str(folder), str(target))
        raise ConfigError(
            f"{problems}\nnothing is written: correct a copy of {_CONFIG}, and name the copy with --config"
        ) from error


def _print_result(target: Path, config: Path | None, agent: CapturedAgent, files: CapturedFiles) -> None:
    source = f"from {config}" if config is not None else f"without an {_CONFIG}: add the agent's prompt to it"
    written = f"{count_text(files.count, 'file')}, {files.size:,} bytes"
    print(f"{shlex.quote(os.path.relpath(target))} written: {written}; agent.yaml {source}")
    _print_list("left out of workspace/", (f"{path}: {reason}" for path, reason in files.left_out))
    _print_list("left out of agent.yaml, because each run decides them", agent.left_out)
    print(f"read it, then name it in a run profile: openclaw: {{agent_id: {target.name}}}")
    sys.stdout.flush()
    with_keys = [*files.with_keys, *agent.with_keys]
    if with_keys:
        print("not written, because of a key; remove the key, then capture again with --force:", file=sys.stderr)
        for line in with_keys:
            print(f"  {line}", file=sys.stderr)


def _print_list(title: str, lines: Iterable[str]) -> None:
    ordered = sorted(lines)
    if ordered:
        print(f"{title}:")
    for line in ordered[:_SHOWN]:
        print(f"  {printable(line)}")
    if len(ordered) > _SHOWN:
        print(f"  and {len(ordered) - _SHOWN:,} more")


def _parse_agent_id(text: str) -> str:
    if re.fullmatch("[a-z0-9][a-z0-9_-]{0,63}", text) is None:
        raise argparse.ArgumentTypeError(f"found {text!r}, expected lower-case letters, digits, '_' and '-'")
    return text
