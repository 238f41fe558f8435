"""`agentbench watch [OUTPUT]`: a page of this machine that shows a session while it runs."""

from __future__ import annotations

import argparse
from pathlib import Path

from pytest_agentbench.cli.output import refuse_usage
from pytest_agentbench.errors import InfrastructureError


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command with its options."""
    parser = subparsers.add_parser(
        "watch",
        help="show a session while it runs, as a page on loopback",
        description="Serve a page on 127.0.0.1 that shows the newest session of an output folder as it goes on: before "
        "it starts, while it runs, when it has ended or was killed, and the next one. Until Ctrl-C.",
    )
    parser.add_argument(
        "output",
        nargs="?",
        type=Path,
        default=Path("outputs"),
        metavar="OUTPUT",
        help="the session's output folder (default: %(default)s)",
    )
    parser.add_argument("--port", type=int, default=8766, help="port; 0 takes a free one (default: %(default)s)")


def run(args: argparse.Namespace) -> int:
    """Serve until interrupted. Exit status 2 if the port is taken or the output is no folder."""
    from pytest_agentbench.cli.labels import find_user_name
    from pytest_agentbench.cli.live_session import LiveData, live_app
    from pytest_agentbench.cli.page_labels import PageLabels
    from pytest_agentbench.cli.serve import HOST, listen, serve_app

    if args.output.exists() and not args.output.is_dir():
        return refuse_usage("watch", f"{args.output}: is no folder; name the output folder of a session")
    try:
        listener = listen(args.port)
    except InfrastructureError as error:
        return refuse_usage("watch", str(error))
    with listener:
        from pytest_agentbench.reports.html.page import live_page
        from pytest_agentbench.reports.rows import HUMAN_FILE

        labels = PageLabels(Path(HUMAN_FILE).absolute(), find_user_name() or "unnamed")
        address = f"http://{HOST}:{listener.getsockname()[1]}/?token={labels.token}"
        print(f"watching {args.output}: {address}  (Ctrl-C stops)", flush=True)
        serve_app(live_app(LiveData(args.output.absolute()), live_page().encode(), labels), listener)
    return 0
