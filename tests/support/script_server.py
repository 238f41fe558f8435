"""Serve scripts over loopback."""

from __future__ import annotations

import threading
import time
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
        uvicorn.Config(around(scripted_app(scripts, **options)), port=0, log_level="error", lifespan="off", ws="none")
    )
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.005)
    try:
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}/v1"
    finally:
        server.should_exit = True
        thread.join(10)
