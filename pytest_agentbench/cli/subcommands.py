"""Commands of a command, whose modules are imported once they are chosen."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any

_FOLDERS = ("research",)
_MODULES = {"run": "pipeline"}
"""A module `run` would hide the function `run` of its folder."""


def add_commands(parser: argparse.ArgumentParser, group: str, commands: Mapping[str, str]) -> None:
    """Adds the commands of `group` with their summaries; each is a module `<group>_<name>` with add_parser and run.

    The commands of `research` are modules of the folder of that name. A module may add commands of its own command,
    such as `fact extract`: that is what `args.chosen` says then.
    """
    chosen = parser.add_subparsers(dest="chosen", metavar="COMMAND", required=True, parser_class=_Chosen)
    for name, summary in commands.items():
        chosen.add_parser(name, help=summary, group=group, command=name)


def run_chosen(group: str, args: argparse.Namespace) -> int:
    """Runs the command that was chosen."""
    code: int = _module(group, args.chosen).run(args)
    return code


class _Chosen(argparse.ArgumentParser):
    """Stands for a command. Its module, which has the options, is imported once it is chosen."""

    def __init__(self, *, group: str, command: str, **settings: Any) -> None:
        super().__init__(**settings)
        self._group, self._command = group, command

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        parser = argparse.ArgumentParser(prog=f"agentbench {self._group}")
        commands = parser.add_subparsers(dest="chosen")
        _module(self._group, self._command).add_parser(commands)
        words = [self._command, *(args or ())]
        if (both := " ".join(words[:2])) in commands.choices:
            words[:2] = [both]
        return parser.parse_known_args(words, namespace)


def _module(group: str, command: str) -> Any:
    name = _MODULES.get(command, command.partition(" ")[0].replace("-", "_"))
    return import_module(f"pytest_agentbench.cli.{group}{'.' if group in _FOLDERS else '_'}{name}")
