"""`agentbench trust [PATH ...]`: grant trust to folders of other authors, list and revoke grants."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterable
from pathlib import Path

from pytest_agentbench.cli.output import printable
from pytest_agentbench.errors import ConfigError

_ACTING = (
    *(".py", ".pyc", ".pyd", ".pth", ".so", ".dll", ".dylib", ".sh", ".js", ".mjs", ".cjs", ".ts"),
    *("Dockerfile", "compose.yaml", "compose.yml"),
)
_ADVICE = re.compile("; (?:write one there|name your own|read the files of )")
"""The beginning of advice in messages to run this command."""
_FOLDERS = ("run_profiles", "evaluation_profiles", "suites", "agents")
_NAMES = ("models", "servers", "commands")


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command with its options."""
    parser = subparsers.add_parser(
        "trust",
        help="grant trust to a folder of another author; list and revoke grants",
        description="Grant folders the permissions of your own config root: to name programs, models and hosts of "
        "keys, and to choose sandboxes, networks and images. A grant is stored in your own configuration folder, and "
        "ends when a file of the folder changes, except cassettes that your sessions record there. The files are shown "
        "first, and a terminal asks for confirmation.",
    )
    parser.add_argument("paths", nargs="*", type=Path, metavar="PATH", help="a config root, or a folder of several")
    parser.add_argument("--list", action="store_true", help="show grants, and the reasons of those that have ended")
    parser.add_argument("--revoke", action="append", default=[], type=Path, metavar="PATH", help="revoke a grant")


def run(args: argparse.Namespace) -> int:
    """Grant, revoke and list, in this order. Return 1 if a grant was refused or there was nothing to revoke."""
    from pytest_agentbench.cli.places import require_existing
    from pytest_agentbench.config.grants import remove_grant

    if not (args.paths or args.revoke or args.list):
        raise ConfigError("agentbench trust: found no PATH, expected the folder to trust, --revoke PATH or --list")
    done = [_grant(path) for path in require_existing(args.paths)]
    for path in args.revoke:
        removed = remove_grant(path)
        done.append(removed)
        state = "is trusted no longer" if removed else "was not trusted"
        print(printable(f"{path.absolute()}: {state}"))
    if args.list:
        _print_grants()
    return int(not all(done))


def _grant(folder: Path) -> bool:
    from pytest_agentbench.config.grants import Grant, save_grant

    if not folder.is_dir():
        raise ConfigError(f"{folder}: found a file, expected its folder")
    grant = Grant.of(folder)  # before they are shown: a change after that ends the grant
    for line in _describe_folder(folder, grant.files):
        print(printable(line))
    # Without a terminal the command itself is the answer: scripts grant so.
    if sys.stdin.isatty() and input("Grant it? [y/N] ").strip().lower() not in ("y", "yes"):
        print("nothing is granted")
        return False
    save_grant(grant)
    print(printable(f"{folder}: is trusted, until one of its {len(grant.files):,} files changes"))
    return True


def _describe_folder(folder: Path, files: Iterable[str]) -> list[str]:
    """Describe the folder's files that can run programs, and the fields that a guest is refused."""
    from pytest_agentbench.cli.checker import Checker
    from pytest_agentbench.cli.places import session_roots
    from pytest_agentbench.config.grants import NO_TRUST

    around = session_roots([folder])
    # Checked as a guest: a grant would allow everything that is refused.
    checker = Checker(around._replace(own=None if around.own == folder else around.own, trust=NO_TRUST))
    checker.check(folder)
    refused = [
        _ADVICE.split(finding.line)[0] for finding in sorted(checker.findings, key=lambda each: not each.is_error)
    ]
    acting = [name for name in files if _can_act(name)]
    return [
        f"{folder} holds {checker.cases:,} cases. With a grant these files choose programs to run and hosts of keys:",
        *(f"  {name}" for name in acting or ["none"]),
        "Without a grant these are refused or doubtful:",
        *(f"  {line}" for line in refused or ["nothing"]),
    ]


def _can_act(name: str) -> bool:
    path = Path(name)
    return name.endswith(_ACTING) or path.stem in _NAMES or any(part in _FOLDERS for part in path.parts)


def _print_grants() -> None:
    from pytest_agentbench.config.grants import read_grants, written_folders

    written = written_folders(Path.cwd())
    for grant in read_grants():
        line = f"{grant.folder}: {len(grant.files):,} files"
        if reason := grant.find_change(written):
            line += f", ended: {reason}"
        print(printable(line))
