"""`agentbench sessions`: the sessions that run, their runs, and requests that change them."""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pytest_agentbench.cli.argument_types import parse_positive
from pytest_agentbench.cli.output import printable, refuse_usage
from pytest_agentbench.errors import ConfigError

_RUNS_LISTED = 50
_RUN_HELP = "the run's node id, its case id, or any part of the node id that no other has"
_POLL_SECONDS = 1.0
_NO_SESSION = 3
"""Exit status if no session runs, so that scripts can tell it from a refused request."""


class _NoSessionError(ConfigError):
    """No session runs that could be operated."""


@dataclass(frozen=True)
class _Live:
    """A session that runs. `state` is its answer, else `problem` is why it does not answer."""

    output: Path
    name: str
    state: dict[str, Any] | None
    problem: str | None

    def as_dict(self) -> dict[str, Any]:
        """Return the session as `--json` prints it."""
        if self.state is None:
            return {"session": self.name, "output": str(self.output), "problem": self.problem}
        return self.state


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command with its own commands."""
    shared = argparse.ArgumentParser(add_help=False)
    shared.add_argument(
        "--output",
        type=Path,
        action="append",
        default=argparse.SUPPRESS,
        metavar="DIR",
        help="the sessions' output folder (repeatable; default: outputs)",
    )
    printed = argparse.ArgumentParser(add_help=False)
    printed.add_argument(
        "--json",
        action="store_true",
        default=argparse.SUPPRESS,
        help="print JSON: an object a line for each session or run, or the session's answer",
    )
    named = argparse.ArgumentParser(add_help=False)
    named.add_argument("--session", metavar="ID", help="the session, if several run; a part of its id is enough")
    parser = subparsers.add_parser(
        "sessions",
        parents=[shared, printed],
        help="list and operate the sessions that run: cancel a run, change limits",
        description="List the sessions that run and write to an output folder, with their progress and cost. Only the "
        "user who started a session can list and operate it.",
    )
    commands = parser.add_subparsers(dest="sessions_command", metavar="COMMAND")
    reasoned = argparse.ArgumentParser(add_help=False)
    reasoned.add_argument("--reason", metavar="TEXT", help="why, for the session's journal")
    commands.add_parser("list", parents=[shared, printed], help="list the sessions, as without a command")
    shown = commands.add_parser(
        "show",
        parents=[shared, printed, named],
        help="show the runs in flight and the limits, or one run",
        description="Show the runs in flight and the limits, or how far one run in flight is.",
    )
    shown.add_argument("run", metavar="RUN", nargs="?", help=_RUN_HELP)
    shown.add_argument("--content", action="store_true", help="also show the end of the run's conversation")
    commands.add_parser(
        "follow",
        parents=[shared, printed, named],
        help="print each run when it is reported, until the session ends",
    )
    _add_changes(commands, [shared, printed, named, reasoned])


def _add_changes(
    commands: argparse._SubParsersAction[argparse.ArgumentParser], parents: list[argparse.ArgumentParser]
) -> None:
    """Add the commands that change a session."""
    cancelled = commands.add_parser(
        "cancel",
        parents=parents,
        help="cancel one run in flight, or all",
        description="Cancel one run in flight, or all. A cancelled run is reported as skipped, cancelled by the user, "
        "and fails the session as any run that was not made. The next session runs it.",
    )
    cancelled.add_argument("run", metavar="RUN", nargs="?", help=_RUN_HELP)
    cancelled.add_argument("--all", action="store_true", help="cancel all runs in flight")
    commands.add_parser(
        "pause",
        parents=parents,
        help="start no more runs until `resume`",
        description="Start no more runs until `agentbench sessions resume`. Runs in flight go on.",
    )
    commands.add_parser("resume", parents=parents, help="start runs again after `pause`")
    commands.add_parser(
        "drain",
        parents=parents,
        help="start no more runs",
        description="Start no more runs. Those in flight end and are reported, and the session fails, because runs are "
        "missing. The next session makes them.",
    )
    retuned = commands.add_parser(
        "retune",
        parents=parents,
        help="change the number of runs in flight and the limit of cost",
        description="Change limits of a session while it runs, in place of its options and profiles. Runs in flight "
        "are not interrupted. A limit of cost that the session began with cannot be raised, and the number of runs in "
        "flight only to four times the first one.",
    )
    retuned.add_argument("--concurrency", type=parse_positive, metavar="N", help="keep up to N runs in flight")
    retuned.add_argument(
        "--max-cost",
        type=_parse_money,
        metavar="USD",
        help="start no more runs once runs and judges have cost this much",
    )


def _parse_money(text: str) -> float:
    from pytest_agentbench.options import parse_money

    return parse_money(text)


def run(args: argparse.Namespace) -> int:
    """Run one of them: 0 all is well, 1 the request is refused, 2 wrong usage, 3 no session runs."""
    try:
        return _run(args)
    except _NoSessionError as error:
        print(printable(f"agentbench sessions: {error}"), file=sys.stderr)
        return _NO_SESSION


def _run(args: argparse.Namespace) -> int:
    outputs = getattr(args, "output", [Path("outputs")])
    as_json = getattr(args, "json", False)
    if args.sessions_command in (None, "list"):
        _list(_find_live(outputs), outputs, as_json=as_json)
        return 0
    if args.sessions_command == "retune" and args.concurrency is None and args.max_cost is None:
        return refuse_usage("sessions retune", "name a limit: --concurrency N or --max-cost USD")
    if args.sessions_command == "cancel" and args.all == (args.run is not None):
        return refuse_usage("sessions cancel", "name a run, or --all")
    live = _choose(_find_live(outputs), outputs, args.session)
    if args.sessions_command == "show" and args.run is not None:
        _show_run(_ask(live, {"do": "show", "run": args.run, "content": args.content}), as_json=as_json)
    elif args.sessions_command == "show":
        _show(live, as_json=as_json)
    elif args.sessions_command == "follow":
        _follow(live, as_json=as_json)
    else:
        _change(live, args, as_json=as_json)
    return 0


def _change(live: _Live, args: argparse.Namespace, *, as_json: bool) -> None:
    """Send a request that changes the session, and print what it does."""
    request: dict[str, Any] = {"do": args.sessions_command}
    if args.reason is not None:
        request["reason"] = args.reason
    if args.sessions_command == "cancel":
        request |= {"all": True} if args.all else {"run": args.run}
    elif args.sessions_command == "retune":
        request |= {"concurrency": args.concurrency, "max_cost": args.max_cost}
    answer = _ask(live, request)
    if as_json:
        print(json.dumps(answer))
        return
    for nodeid in answer.get("cancelled", ()):
        print(printable(f"{nodeid}: is being cancelled"))
    for text in answer.get("warnings", ()):
        print(printable(text))
    if args.sessions_command in _DONE:
        print(printable(f"{live.name}: {_DONE[args.sessions_command]}"))


_DONE = {
    "pause": "starts no more runs until `agentbench sessions resume`",
    "resume": "starts runs again",
    "drain": "starts no more runs",
}


def _follow(live: _Live, *, as_json: bool) -> None:
    """Print the reported runs, and new ones each second, until the session has ended."""
    from pytest_agentbench.reports.journal import FOLDER, is_held

    journal = live.output / FOLDER / f"{live.name}.journal"
    printed: set[str] = set()
    following = 0
    while True:
        try:
            answer = _ask(live, {"do": "follow", "from": following})
        except ConfigError:
            if live.state is None:
                raise
            if is_held(journal):  # it writes its report, or serves as many clients as it can
                time.sleep(_POLL_SECONDS)
                continue
            _print_records(_list_last_records(live), printed, as_json=as_json)
            return
        _print_records(answer["records"], printed, as_json=as_json)
        following = answer["next"]
        if not answer["records"]:
            time.sleep(_POLL_SECONDS)


def _list_last_records(live: _Live) -> list[dict[str, Any]]:
    """Return the records of all runs from the report of the session, which has ended; [] without its report."""
    from pytest_agentbench.distributed.live_session import describe_row
    from pytest_agentbench.reports.reading import read_report

    assert live.state is not None
    try:
        report = read_report(live.output / "report.json")
    except ConfigError:
        return []
    if report["session"]["started_at"] != live.state["started_at"]:
        return []
    return [describe_row(row) for row in report["runs"]]


def _print_records(records: list[dict[str, Any]], printed: set[str], *, as_json: bool) -> None:
    """Print the records of runs that are not `printed` yet."""
    for record in records:
        if record["nodeid"] in printed:
            continue
        printed.add(record["nodeid"])
        text = json.dumps(record) if as_json else printable(f"{record['outcome']:>8}  {record['nodeid']}")
        print(text, flush=True)


def _show_run(run: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        print(json.dumps(run))
        return
    print(printable(f"{run['nodeid']}: {run.get('seconds', 0):.1f} s, {run.get('phase', 'ended')}"))
    if "requests" in run:
        tokens = "unknown" if run["tokens"] is None else f"{run['tokens']:,}"
        print(f"{run['requests']} model replies, {tokens} tokens, {run['tool_calls']} tool calls")
        if run["last_tools"]:
            print(printable(f"last tools: {', '.join(run['last_tools'])}"))
    for message in run.get("messages", ()):
        print(printable(f"{message['role']}: {message['text']}"))


def _find_live(outputs: list[Path]) -> list[_Live]:
    """Return the sessions whose journals are held, the newest first within each folder."""
    from pytest_agentbench.reports.journal import is_held, journals

    return [_look(output, path.stem) for output in outputs for path in journals(output) if is_held(path)]


def _look(output: Path, name: str) -> _Live:
    from pytest_agentbench.distributed.control_socket import RequestRefused, ask_session

    try:
        state = ask_session(output, name, {"do": "state"})
    except (OSError, ValueError, RecursionError, RequestRefused) as error:
        return _Live(output, name, None, _describe_problem(error))
    return _Live(output, name, state, None)


def _describe_problem(error: Exception) -> str:
    if isinstance(error, FileNotFoundError):
        return "it has no socket: it is starting or ending, or its output folder's file system has none"
    if isinstance(error, ConnectionRefusedError):
        return "its socket does not answer: it may run on another machine"
    return str(error) or type(error).__name__


def _choose(sessions: list[_Live], outputs: list[Path], name: str | None) -> _Live:
    """Return the only session, or the one that is named. Raises ConfigError."""
    matches = [live for live in sessions if name is None or name in live.name]
    if len(matches) == 1:
        return matches[0]
    listed = ", ".join(live.name for live in matches or sessions) or "none"
    folders = ", ".join(map(str, outputs))
    if matches:
        raise ConfigError(f"found {len(matches)} sessions in {folders}; name one with --session: {listed}")
    wanted = "session" if name is None else f"session {name!r}"
    raise _NoSessionError(f"found no {wanted} that runs and writes to {folders}; running are: {listed}")


def _ask(live: _Live, request: dict[str, Any]) -> dict[str, Any]:
    """Return the session's answer. Raises ConfigError if it refuses the request, or does not answer."""
    from pytest_agentbench.distributed.control_socket import RequestRefused, ask_session

    problem = live.problem
    if problem is None:
        try:
            return ask_session(live.output, live.name, request)
        except (OSError, ValueError, RecursionError, RequestRefused) as error:
            problem = _describe_problem(error)
    raise ConfigError(f"session {live.name}: {problem}")


def _list(sessions: list[_Live], outputs: list[Path], *, as_json: bool) -> None:
    for live in sessions:
        print(json.dumps(live.as_dict()) if as_json else _describe(live))
    if not sessions and not as_json:
        print(printable(f"no session runs that writes to {', '.join(map(str, outputs))}"))


def _show(live: _Live, *, as_json: bool) -> None:
    if as_json:
        print(json.dumps(live.as_dict()))
        return
    print(_describe(live))
    if live.state is None:
        return
    limits = live.state["limits"]
    cost = "no limit of cost" if limits["max_cost"] is None else f"at most ${limits['max_cost']:.4f}"
    print(f"process {live.state['process_id']}: up to {limits['concurrency']} runs in flight, {cost}")
    if live.state["paused"]:
        print("paused: starts no more runs until `agentbench sessions resume`")
    if live.state["stopping"] is not None:
        print(printable(f"starts no more runs: {live.state['stopping']}"))
    longest_first = sorted(live.state["in_flight"], key=lambda run: -run["seconds"])
    for run in longest_first[:_RUNS_LISTED]:
        print(printable(f"{run['seconds']:>8.1f} s  {run['nodeid']}"))
    if len(longest_first) > _RUNS_LISTED:
        print(f"... and {len(longest_first) - _RUNS_LISTED:,} more")


def _describe(live: _Live) -> str:
    if live.state is None:
        return printable(f"{live.name}  {live.output}  {live.problem}")
    state = live.state
    made = max(state["ended"], state["reported"])
    at_least = ">=" if state["spent_usd"] is None else ""
    spent = f"{at_least}${state['at_least']['spent_usd']:.4f}"
    progress = f"{made} of {state['runs']} runs, {len(state['in_flight'])} in flight, {spent}"
    return printable(f"{live.name}  {progress}  {live.output}")
