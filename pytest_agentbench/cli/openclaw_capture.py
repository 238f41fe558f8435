"""`agentbench openclaw capture WORKSPACE`: writes an agent's folder from a live OpenClaw workspace."""

from __future__ import annotations

import argparse
import os
import re
import shlex
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_agentbench.cli.captured_agent import CapturedAgent
    from pytest_agentbench.cli.captured_files import CapturedFiles

_CONFIG = "openclaw.json"
_OPENCLAWS_OWN = (_CONFIG, "state/openclaw.sqlite", "agents/*/agent", "agents/*/sessions")
"""Of these OpenClaw's own folder has one or more. Its configuration may lie elsewhere."""
_SHOWN = 50


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds the command with its options."""
    parser = subparsers.add_parser(
        "capture",
        help="write an agent's folder from a live OpenClaw workspace",
        description="Write agents/ID/agent.yaml and workspace/ from a live OpenClaw workspace, which is only read. "
        "Links, large files, state, caches and whatever holds a key are left out and listed. Exit status 0: the agent "
        "is written; 1: it is not, or something that holds a key is missing from it; 2: wrong usage.",
    )
    parser.add_argument("workspace", type=Path, metavar="WORKSPACE", help="the live workspace: ~/.openclaw/workspace")
    parser.add_argument("--agent-id", type=_agent_id, required=True, metavar="ID", help="the new agent's folder")
    parser.add_argument(
        "--config", type=Path, metavar="FILE", help=f"the live {_CONFIG} (default: the one beside WORKSPACE, if any)"
    )
    parser.add_argument(
        "--into", type=Path, default=Path("agents"), metavar="DIR", help="the folder of agents (default: %(default)s)"
    )
    parser.add_argument("--force", action="store_true", help="replace an agent that is there already")


def run(args: argparse.Namespace) -> int:
    """Writes the agent, whole or not at all, and says what is in it and what is not."""
    from pytest_agentbench.cli.captured_agent import captured_agent, choose, read_live, secrets_of
    from pytest_agentbench.cli.captured_files import capture_files
    from pytest_agentbench.cli.places import existing
    from pytest_agentbench.store import Redactor
    from pytest_agentbench.workspaces import Workspace

    (workspace,) = (path.resolve() for path in existing([args.workspace]))
    target = args.into.absolute() / args.agent_id
    config = _config(args.config, workspace)
    _refuse(workspace, config, target, args.force)
    redactor = Redactor()
    live, name, others = None, None, frozenset[str]()
    if config is not None:
        live = read_live(config)
        redactor.know_values(secrets_of(live))
        name = choose(live, workspace, args.agent_id)
        others = frozenset(live.agents) - {name}
    agent = captured_agent(live, name, args.agent_id, redactor)
    with _written(target) as folder:
        (folder / "workspace").mkdir()
        files = capture_files(Workspace(workspace), folder / "workspace", others, redactor)
        _describe(agent, folder, target)
    _tell(target, config, agent, files)
    return 1 if agent.with_keys or files.with_keys else 0


def _refuse(workspace: Path, config: Path | None, target: Path, force: bool) -> None:
    """Raises ConfigError for what is no workspace, and for a target that stands in the way."""
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


def _config(given: Path | None, workspace: Path) -> Path | None:
    from pytest_agentbench.cli.places import existing

    if given is not None:
        return existing([given])[0]
    beside = workspace.parent / _CONFIG
    return beside if beside.is_file() else None


@contextmanager
def _written(target: Path) -> Iterator[Path]:
    """A folder that takes the target's place at the end of the block. Raises ConfigError where it cannot be written."""
    from pytest_agentbench.errors import ConfigError

    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        # two folders deep, where nothing looks for agents
        with tempfile.TemporaryDirectory(prefix=".capture-", dir=target.parent) as temporary:
            folder, replaced = Path(temporary, target.name), Path(temporary, "replaced", target.name)
            folder.mkdir()
            yield folder
            if os.path.lexists(target):
                replaced.parent.mkdir()
                target.rename(replaced)
            try:
                folder.rename(target)
            except OSError:
                if os.path.lexists(replaced):
                    replaced.rename(target)
                raise
    except OSError as error:
        raise ConfigError(f"{target}: cannot be written: {error.strerror or error}") from error


def _describe(agent: CapturedAgent, folder: Path, target: Path) -> None:
    """Writes agent.yaml. Raises ConfigError where it would not load."""
    import yaml

    from pytest_agentbench.cli.editor import schema_line
    from pytest_agentbench.config import AgentFile, load
    from pytest_agentbench.errors import ConfigError

    path = folder / "agent.yaml"
    text = yaml.safe_dump(agent.data, sort_keys=False, allow_unicode=True, width=120)
    path.write_text(schema_line("agent", target / path.name) + text, encoding="utf-8")
    try:
        load(path, AgentFile)
    except ConfigError as error:
        found = str(error).replace(str(folder), str(target))
        raise ConfigError(f"{found}\nnothing is written: change that in a copy of {_CONFIG}, and name it") from error


def _tell(target: Path, config: Path | None, agent: CapturedAgent, files: CapturedFiles) -> None:
    count = f"{files.count:,} file{'' if files.count == 1 else 's'}"
    source = f"from {config}" if config is not None else f"without an {_CONFIG}: add the agent's prompt to it"
    print(f"{shlex.quote(os.path.relpath(target))} written: {count}, {files.size:,} bytes; agent.yaml {source}")
    _tell_list("left out of workspace/", (f"{path}: {reason}" for path, reason in files.left_out))
    _tell_list("left out of agent.yaml, as a run decides them", agent.left_out)
    print(f"read it, then name it in a run profile: openclaw: {{agent_id: {target.name}}}")
    sys.stdout.flush()
    with_keys = [*files.with_keys, *agent.with_keys]
    if with_keys:
        print("not written, as a key was found in it; take it out, then capture again with --force:", file=sys.stderr)
        for line in with_keys:
            print(f"  {line}", file=sys.stderr)


def _tell_list(title: str, lines: Iterable[str]) -> None:
    from pytest_agentbench.cli.printing import printable

    found = sorted(lines)
    if found:
        print(f"{title}:")
    for line in found[:_SHOWN]:
        print(f"  {printable(line)}")
    if len(found) > _SHOWN:
        print(f"  and {len(found) - _SHOWN:,} more")


def _agent_id(text: str) -> str:
    if re.fullmatch("[a-z0-9][a-z0-9_-]{0,63}", text) is None:
        raise argparse.ArgumentTypeError(f"found {text!r}, expected lower-case letters, digits, '_' and '-'")
    return text
