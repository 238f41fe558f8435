"""Serve MCP on stdin and stdout by forwarding each message to an address.

Usage: mcp_relay.py URL. mcp_relay.mjs does the same in Node, for images without Python. This file runs in any Python 3
and imports nothing of this package.
"""

import http.client
import json
import sys
import threading
from typing import IO
from urllib.parse import urlsplit

LAST_SECONDS = 1.0  # time for answers after stdin has ended
LOCK = threading.Lock()


def write(line: bytes) -> None:
    """Write one message to stdout."""
    with LOCK:
        sys.stdout.buffer.write(line.strip() + b"\n")
        sys.stdout.buffer.flush()


def read_events(response: IO[bytes]) -> None:
    """Write the messages of a stream of events."""
    for line in response:
        if line.startswith(b"data:"):
            write(line[5:])


def forward(url: str, line: bytes) -> None:
    """Send a message to the address, and write its answer."""
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.netloc)
    headers = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
    try:
        connection.request("POST", parts.path, line, headers)
        response = connection.getresponse()
        if response.status == 202:
            response.read()
        elif response.headers.get_content_type() == "text/event-stream":
            read_events(response)
        else:
            write(response.read())
    except (OSError, http.client.HTTPException) as error:
        if (number := json.loads(line).get("id")) is not None:
            problem = {"code": -32603, "message": f"the server cannot be reached: {error}"}
            write(json.dumps({"jsonrpc": "2.0", "id": number, "error": problem}).encode())
    finally:
        connection.close()


def main(url: str) -> None:
    """Forward until stdin ends."""
    last = None
    for line in sys.stdin.buffer:
        if line.strip():
            last = threading.Thread(target=forward, args=(url, line), daemon=True)
            last.start()
    if last is not None:
        last.join(LAST_SECONDS)


if __name__ == "__main__":
    main(*sys.argv[1:])
