"""Listen on loopback for connections that must not happen, or that get one answer."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field


@dataclass
class Listener:
    """A listener on loopback. It records each connection's first data, and answers with `reply` or not at all."""

    port: int
    said: list[bytes] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


@contextmanager
def listening(reply: bytes = b"") -> Iterator[Listener]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        listener = Listener(server.getsockname()[1])

        def serve() -> None:
            while True:
                connection, _ = server.accept()
                with connection:
                    said = connection.recv(65536)
                    if said == b"end":
                        return
                    listener.said.append(said)
                    connection.sendall(reply)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield listener
        finally:
            with socket.create_connection(("127.0.0.1", listener.port)) as last:
                last.sendall(b"end")
            thread.join()
