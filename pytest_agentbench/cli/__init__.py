"""The `agentbench` command, for work that needs no pytest session.

Others use: commands, dataset_guesses, dataset_text, doctor_needs, list, merging, output, places, report_options,
schema, servers
"""

from __future__ import annotations

import argparse
import gc
import os
import sys
from collections.abc import Sequence

from pytest_agentbench.cli.commands import find_commands, list_ignored
from pytest_agentbench.extensions import list_problems
from pytest_agentbench.seams import Command
from pytest_agentbench.terminal_text import visible

TYPE_CHECKING = False  # see commands.py
if TYPE_CHECKING:
    from typing import Any

_SUMMARIES = {
    "init": "begin a project",
    "new": "add a case, a judge or a dataset to a project",
    "validate": "check configuration files, cases and datasets",
    "evaluate": "score a file of predictions against a dataset",
    "list": "show the cases of a folder",
    "compare": "compare two reports, or two models of one, case by case",
    "explain": "explain why a case's outcome differs between two reports",
    "history": "show the trend of each case over sessions, and which cases are blocking or quarantined",
    "merge": "join the reports of a session's shards",
    "show": "show a run: why it failed, question, answer and conversation",
    "report": "show a session's results, as a page, Markdown, CSV, Parquet, a chart, or for GitHub",
    "review": "label judged runs as passed or failed, to compare judges with people",
    "watch": "show a session while it runs, as a page on loopback",
    "sessions": "list and operate the sessions that run: cancel a run, change limits",
    "batch": "list the batches to be collected, and cancel one",
    "store": "look into the store of runs: why, prune, verify, export",
    "schema": "print JSON Schemas of the configuration files, for editors",
    "trust": "grant trust to a folder of another author; list and revoke grants",
    "doctor": "check that this machine can run the cases",
    "agents": "list, build, try and show command-line agents, and begin an adapter for another",
    "mcp": "list and call tools of MCP servers; report on, judge and make tasks for them",
    "skill": "print a skill for coding agents: how to write, run, read and stop benchmarks",
    "serve": "answer chat completions from the scripts of cases, on loopback",
}
COMMANDS = {name: Command(summary, f"{__name__}.{name}") for name, summary in _SUMMARIES.items()}
"""The package's own; packs add theirs."""
OPEN_GROUPS = ("mcp",)
"""The package's commands with commands below them, to which packs may add."""
_GARBAGE = 100_000
"""How many new objects a look for garbage waits for: modules are none, and else it is a tenth of a short command."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command: 0 all is well, 1 something is wrong with the files, 2 wrong usage.

    Only the module of the command that runs is imported.
    """
    arguments = [*(sys.argv[1:] if argv is None else argv)]  # `list` is the command's module here, once it is imported
    try:
        args = _parser(arguments).parse_args(arguments)
    except SystemExit:
        _print_problems()  # a command may be unknown because of them
        raise
    from contextlib import redirect_stderr, redirect_stdout

    from pytest_agentbench.errors import WINDOWS, AgentbenchError
    from pytest_agentbench.terminal_text import DefusingStream

    if sys.platform == "win32":
        print(WINDOWS, file=sys.stderr)
        return 2
    streams: Any = (sys.stdout, sys.stderr)  # None if it is closed
    shown: Any = [stream and DefusingStream(stream) for stream in streams]
    command = COMMANDS.get(args.command) or find_commands(COMMANDS)[args.command]
    thresholds = gc.get_threshold()
    gc.set_threshold(_GARBAGE)
    try:
        with redirect_stdout(shown[0]), redirect_stderr(shown[1]):
            code: int = command.load().run(args)
            sys.stdout.flush()
    except AgentbenchError as error:
        print(visible(str(error)), file=sys.stderr)
        return 1
    except BrokenPipeError:
        # The reader (`head`) has seen enough; without this, flushing at exit would complain.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        return 130
    finally:
        _print_problems()
        if argv is None:  # the process ends: Python would look for garbage among all modules once more
            gc.freeze()
        gc.set_threshold(*thresholds)
    return code


def _print_problems() -> None:
    for problem in list_problems():
        print(f"agentbench: {visible(problem)}", file=sys.stderr)


def _parser(arguments: Sequence[str]) -> argparse.ArgumentParser:
    summary = "Your agent benchmarks are tests; run them with pytest."
    parser = argparse.ArgumentParser(prog="agentbench", description=summary)
    parser.add_argument("--version", action=_Version)
    wanted = next((argument for argument in arguments if not argument.startswith("-")), None)
    # Packs are looked for, in the entry points of all that is installed, only where our own command is not meant.
    commands = {wanted: COMMANDS[wanted]} if wanted in COMMANDS else find_commands(COMMANDS)
    kind: Any = argparse.ArgumentParser if wanted in commands else _Named
    subparsers = parser.add_subparsers(dest="command", metavar="COMMAND", required=True, parser_class=kind)
    if wanted in commands:
        commands[wanted].load().add_parser(subparsers)
    else:
        for name, command in commands.items():
            subparsers.add_parser(name, help=command.summary)
        if ignored := list_ignored(COMMANDS, OPEN_GROUPS):
            parser.epilog = f"ignored commands of plugins, whose names this package has: {', '.join(ignored)}"
    return parser


class _Named:
    """Replace the parser of a command that the help only lists. Making an ArgumentParser takes 0.3 ms."""

    def __init__(self, **_: object) -> None:
        pass


class _Version(argparse.Action):
    def __init__(self, option_strings: Sequence[str], dest: str) -> None:
        super().__init__(option_strings, dest, nargs=0, help="print the version")

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from importlib.metadata import version

        parser.exit(message=f"agentbench {version('pytest-agentbench')}\n")
