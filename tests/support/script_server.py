"""Serve scripts over loopback."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from starlette.types import ASGIApp

from pytest_agentbench.models.completions_http import scripted_app
from pytest_agentbench.models.scripts import Scripts


@contextmanager
def served(scripts: Scripts, around: Callable[[ASGIApp], ASGIApp] = lambda app: app, **options) -> Iterator[str]:
    """Serve the app, or `around(app)`, on a real loopback server. Yield its base_url."""
    import uvicorn

    server = uvicorn.Server(
        uvicorn.Config(around(scripted_app(scripts, **options)), log_level="error", lifespan="off", ws="none")
    )
    # The socket listens at once, so that clients may connect before the server has started.
    listener = socket.create_server(("127.0.0.1", 0))
    thread = threading.Thread(target=server.run, args=([listener],), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/v1"
    finally:
        server.should_exit = True
        thread.join(10)
