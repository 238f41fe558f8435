"""Find the commands of the package and of packs by name. A command's module is imported once it is chosen."""

from __future__ import annotations

import argparse
from collections import namedtuple
from collections.abc import Collection, Mapping, Sequence
from importlib import import_module

from pytest_agentbench.extensions import extension_names, find_extension

TYPE_CHECKING = False  # not from typing, nor dataclasses: `agentbench --help` would take half as long again
if TYPE_CHECKING:
    from typing import Any


class Command(namedtuple("Command", ("summary", "module"))):
    """A command of `agentbench`, or of one of its groups.

    `module` is imported once the command is chosen. It has `add_parser(subparsers)`, which adds one parser of the
    command's name, and `run(args) -> int`, which gives the exit status: 0 all is well, 1 something is wrong with the
    files, 2 wrong usage. A module of several commands has an object with both: `package.module:OBJECT`.
    """

    __slots__ = ()

    def load(self) -> Any:
        """Return the module or object with the command's `add_parser` and `run`."""
        module, _, name = self.module.partition(":")
        if name:
            return getattr(import_module(module), name)
        return import_module(module)


class Parts(namedtuple("Parts", ("add_parser", "run"))):
    """The two functions of a command whose module has several."""

    __slots__ = ()


class _Group(Command):
    """A group that has commands by entry points `command GROUP NAME` alone. `module` is its name."""

    __slots__ = ()

    def load(self) -> Any:
        """Return itself: it has `add_parser` and `run`."""
        return self

    def add_parser(self, subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
        """Add the group with its commands."""
        parser = subparsers.add_parser(self.module, help=self.summary)
        add_commands(parser, self.module, find_commands({}, self.module))

    def run(self, args: argparse.Namespace) -> int:
        """Run the chosen command of the group."""
        return run_chosen(find_commands({}, self.module), args)


def find_commands(own: Mapping[str, Command], group: str = "") -> dict[str, Command]:
    """Return all commands: the package's, and packs' entry points `command NAME` or `command GROUP NAME`.

    Without `group`, a GROUP that is no command itself is one of the commands.
    """
    prefix = f"{group} " if group else ""
    names = sorted(name for name in extension_names("command") if name.startswith(prefix))
    added = {short: name for name in names if " " not in (short := name.removeprefix(prefix))}
    groups: dict[str, list[str]] = {}
    for name in names:
        word, _, rest = name.removeprefix(prefix).partition(" ")
        if rest and not group and word not in own.keys() | added.keys():
            groups.setdefault(word, []).append(rest)
    found: dict[str, Command | None] = {
        # Our own win: a plugin cannot take the name of a command that scripts rely on.
        short: find_extension("command", name)
        for short, name in added.items()
        if short not in own
    }
    made = {name: _Group(f"commands: {', '.join(names)}", name) for name, names in groups.items()}
    return {**own, **{name: command for name, command in found.items() if command is not None}, **made}


def list_ignored(own: Mapping[str, Command], open_groups: Collection[str]) -> list[str]:
    """Return the commands of packs that nobody can call: the package has the name, or a group that takes none."""
    closed = own.keys() - {*open_groups}
    return sorted(name for name in extension_names("command") if name in own or name.partition(" ")[0] in closed)


def add_commands(parser: argparse.ArgumentParser, group: str, commands: Mapping[str, Command]) -> None:
    """Add the commands of `group` with their summaries.

    A module may add commands below its own, such as `NAME extract`. `args.chosen` is then the whole of it.
    """
    chosen = parser.add_subparsers(dest="chosen", metavar="COMMAND", required=True, parser_class=_ChosenParser)
    for name, command in commands.items():
        chosen.add_parser(name, help=command.summary, group=group, word=name, command=command)


def run_chosen(commands: Mapping[str, Command], args: argparse.Namespace) -> int:
    """Run the command that was chosen and return its exit status."""
    code: int = commands[args.chosen.partition(" ")[0]].load().run(args)
    return code


class _ChosenParser(argparse.ArgumentParser):
    """Refer to a command. The command's module, which has the options, is imported once the command is chosen."""

    def __init__(self, *, group: str, word: str, command: Command, **settings: Any) -> None:
        super().__init__(**settings)
        self._group, self._word, self._command = group, word, command

    # argparse calls this for the chosen command only, after the words before it are parsed.
    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        parser = argparse.ArgumentParser(prog=f"agentbench {self._group}")
        commands = parser.add_subparsers(dest="chosen")
        # The command's own parser is only made now; this one stood for it in the help.
        self._command.load().add_parser(commands)
        words = [self._word, *(args or ())]
        if (both := " ".join(words[:2])) in commands.choices:
            words[:2] = [both]
        return parser.parse_known_args(words, namespace)
