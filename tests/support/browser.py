"""A real browser without a window, for pages that this package writes; `NEEDS_BROWSER` skips where there is none.

It is driven by the DevTools protocol over two pipes, and reaches no network: every host resolves to nothing.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

PROGRAM = shutil.which("chromium") or shutil.which("google-chrome")
NEEDS_BROWSER = pytest.mark.skipif(PROGRAM is None, reason="needs chromium (Debian: apt-get install chromium)")


class Page:
    """A page that is open, and what the browser complained of since."""

    def __init__(self, commands: int, replies: int) -> None:
        self._commands, self._replies = commands, os.fdopen(replies, "rb", closefd=False)
        self._id = 0
        self._session: str | None = None
        self.complaints: list[str] = []
        self.requests: list[str] = []
        target = self("Target.createTarget", url="about:blank")["targetId"]
        self._session = self("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self(f"{domain}.enable")

    def open(self, path: Path) -> None:
        """Returns once the page has loaded."""
        self.requests.clear()
        self("Page.navigate", url=path.as_uri())
        while self._read().get("method") != "Page.loadEventFired":
            pass

    def __call__(self, method: str, **params: Any) -> dict[str, Any]:
        self._id += 1
        message = {"id": self._id, "method": method, "params": params}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._commands, json.dumps(message).encode() + b"\0")
        while (reply := self._read()).get("id") != self._id:
            pass
        assert "error" not in reply, reply
        return reply["result"]

    def value(self, expression: str) -> Any:
        """What the JavaScript expression comes to."""
        result = self("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    def press(self, key: str, code: int) -> None:
        """Presses and releases a key."""
        text = {"Enter": "\r", "Tab": None}[key]
        pressed = {"key": key, "code": key, "windowsVirtualKeyCode": code, **({"text": text} if text else {})}
        self("Input.dispatchKeyEvent", type="keyDown", **pressed)
        self("Input.dispatchKeyEvent", type="keyUp", key=key, code=key, windowsVirtualKeyCode=code)

    def _read(self) -> dict[str, Any]:
        data = bytearray()
        while (byte := self._replies.read(1)) != b"\0":
            assert byte, "the browser has ended"
            data += byte
        message = json.loads(data)
        params = message.get("params", {})
        if message.get("method") == "Log.entryAdded":
            self.complaints.append(params["entry"]["text"])
        elif message.get("method") == "Runtime.exceptionThrown":
            self.complaints.append(params["exceptionDetails"]["text"])
        elif message.get("method") == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])
        return message


@contextmanager
def browser(profile: Path) -> Iterator[Page]:
    """A browser with an empty page; ended at the end of the block."""
    assert PROGRAM is not None
    their_commands, commands = os.pipe()
    replies, their_replies = os.pipe()
    script = f'exec 3<&{their_commands} 4>&{their_replies}; exec "$@"'
    options = ["--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"]
    process = subprocess.Popen(
        [
            *("bash", "-c", script, "bash", PROGRAM, *options, "--remote-debugging-pipe"),
            *("--host-resolver-rules=MAP * ~NOTFOUND", f"--user-data-dir={profile}", "about:blank"),
        ],
        pass_fds=(their_commands, their_replies),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(their_commands)
    os.close(their_replies)
    try:
        yield Page(commands, replies)
    finally:
        process.kill()
        process.wait()
        os.close(commands)
        os.close(replies)
