"""`agentbench serve [PATH]`: the scripted model on loopback, for programs that want an OpenAI-compatible endpoint."""

from __future__ import annotations

import argparse
import socket
import sys
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_agentbench.cli.output import refuse_usage
from pytest_agentbench.errors import InfrastructureError

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

HOST = "127.0.0.1"
_OF_HERE = frozenset({b"127.0.0.1", b"localhost"})
_OF_CONTAINERS = frozenset({b"host.docker.internal", b"host.containers.internal"})
"""Names by which programs in containers call this machine: no public DNS gives them out."""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command with its options."""
    parser = subparsers.add_parser(
        "serve",
        help="answer chat completions from the scripts of cases, on loopback",
        description="Serve the scripts of cases as an OpenAI-compatible endpoint on 127.0.0.1, until Ctrl-C.",
    )
    parser.add_argument(
        "path", nargs="?", type=Path, default=Path(), metavar="PATH", help="folder or case (default: .)"
    )
    parser.add_argument("--port", type=int, default=8765, help="port; 0 takes a free one (default: %(default)s)")
    parser.add_argument("--latency", type=float, default=0.0, metavar="SECONDS", help="wait before each answer")


def run(args: argparse.Namespace) -> int:
    """Serve until interrupted. Exit status 2 if there is nothing to serve or the port is taken."""
    from pytest_agentbench.models.completions_http import scripted_app
    from pytest_agentbench.models.script_trees import ScriptTree

    if not args.path.exists():
        return refuse_usage("serve", f"{args.path}: no such file or folder")
    path = args.path.resolve()
    scripts = ScriptTree(path if path.is_dir() else path.parent)
    for problem in scripts.problems:
        print(problem, file=sys.stderr)
    if scripts.count == 0:
        what = "a demo.yaml next to a test.yaml, or a <name>.demo.yaml next to a dataset"
        return refuse_usage("serve", f"no scripts under {args.path}: add {what}")
    try:
        listener = listen(args.port)
    except InfrastructureError as error:
        return refuse_usage("serve", str(error))
    with listener:
        _serve_scripts(_guard_app(scripted_app(scripts, latency_seconds=args.latency)), listener, scripts.count)
    return 0


def foreign_problem(scope: Scope, names: Collection[bytes] = _OF_HERE) -> str | None:
    """Return why a request comes from a foreign page, or None for a request of this machine.

    A foreign page whose name resolves to this address sends its name as the host, a page of another origin its origin.
    The port may be any, because it may be forwarded.
    """
    headers = dict(scope["headers"])
    host = headers.get(b"host", b"").lower()
    # IPv6 literals fail this, and are not listened on.
    name, colon, port = host.partition(b":")
    if name not in names or (colon and not (port.isdigit() and len(port) < 6)):
        return "only 127.0.0.1 and localhost are answered here"
    if headers.get(b"origin", b"http://" + host).lower() not in (b"http://" + host, b"https://" + host):
        return "no page of another origin is answered here"
    return None


def _guard_app(app: ASGIApp) -> ASGIApp:
    """Return the endpoint, for programs of this machine and of its containers only."""

    async def guarded(scope: Scope, receive: Receive, send: Send) -> None:
        from pytest_agentbench.models.apis.base import RequestRefused
        from pytest_agentbench.models.completions_http import respond_with_refusal

        answer = app
        if (problem := foreign_problem(scope, _OF_HERE | _OF_CONTAINERS)) is not None:
            answer = respond_with_refusal(RequestRefused(403, problem, "foreign_request"))
        await answer(scope, receive, send)

    return guarded


def _serve_scripts(app: ASGIApp, listener: socket.socket, count: int) -> None:
    base_url = f"http://{HOST}:{listener.getsockname()[1]}/v1"
    print(f"base_url: {base_url}  ({count} scripts; Ctrl-C stops)", flush=True)
    print(f"  export OPENAI_BASE_URL={base_url} OPENAI_API_KEY=none", flush=True)
    serve_app(app, listener)


def serve_app(app: ASGIApp, listener: socket.socket) -> None:
    """Serve an ASGI app until Ctrl-C."""
    import uvicorn

    config = uvicorn.Config(
        app,
        log_level="warning",
        lifespan="off",
        ws="none",
        # Ctrl-C must not wait for streams that clients keep open.
        timeout_graceful_shutdown=2,
    )
    try:
        uvicorn.Server(config).run(sockets=[listener])
    except KeyboardInterrupt:
        print("stopped")


def listen(port: int) -> socket.socket:
    """Return a listening socket, so that clients can connect as soon as the address is printed.

    Raises InfrastructureError if the port is taken or invalid.
    """
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        # Or a server that was just stopped blocks its port for a minute.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((HOST, port))
        # Hundreds of runs connect at once; beyond Python's own backlog of 128 the kernel makes clients try again later.
        listener.listen(2048)
    except (OSError, OverflowError) as error:
        listener.close()
        raise InfrastructureError(f"cannot listen on {HOST}:{port}: {error}; choose another --port, or 0") from error
    return listener
