"""Find the commands of the package and of packs by name. A command's module is imported once it is chosen."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Collection, Mapping, Sequence

from pytest_agentbench.extensions import extension_names, load_extensions
from pytest_agentbench.seams import Command

TYPE_CHECKING = False  # not from typing, nor dataclasses: `agentbench --help` would take half as long again
if TYPE_CHECKING:
    from typing import Any


class Parts:
    """The two functions of a command whose module has several."""

    __slots__ = ("add_parser", "run")

    def __init__(self, add_parser: Callable[[Any], None], run: Callable[[argparse.Namespace], int]) -> None:
        self.add_parser, self.run = add_parser, run


class _Group(Command):
    """A group of which packs add only the commands, `GROUP NAME`. `module` is its name."""

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
    """Return all commands: the package's, and those that packs add as `NAME` or `GROUP NAME`.

    Without `group`, a GROUP that is no command itself is one of the commands.
    """
    prefix = f"{group} " if group else ""
    added = {
        name.removeprefix(prefix): command
        for name, command in load_extensions("command").items()
        if name.startswith(prefix)
    }
    groups: dict[str, list[str]] = {}
    for name in added:
        word, _, rest = name.partition(" ")
        if rest and not group and word not in own.keys() | added.keys():
            groups.setdefault(word, []).append(rest)
    made = {name: _Group(f"commands: {', '.join(names)}", name) for name, names in groups.items()}
    # Our own win: a plugin cannot take the name of a command that scripts rely on.
    others = {name: command for name, command in added.items() if " " not in name and name not in own}
    return {**own, **others, **made}


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
