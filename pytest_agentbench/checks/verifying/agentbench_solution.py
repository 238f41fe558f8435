"""Client for the solution, for hidden tests and commands of verifiers that are `apart: true`.

The agent's files run in another sandbox, and only plain data comes back from there. Standard library only, Python
3.8 or later. `python3 -m agentbench_solution PROGRAM [ARGUMENT ...]` runs a program of the solution with this
program's stdin and exits with its status.
"""

from __future__ import annotations

import base64
import json
import os
import socket
import sys
from typing import Any, NamedTuple, Sequence, Union  # noqa: UP035  Python 3.8

_LONGEST_NAME = 100  # of a socket; Linux allows 107 bytes, macOS 103


class SolutionError(Exception):
    """The solution gave no result: it raised, exited, or was killed."""


class Ended(NamedTuple):
    """Result of a program that exited; `output` is its stdout and stderr, in order."""

    exit_code: int
    output: str


class Solution:
    """The agent's solution.

    Each call and each run is a new process. After it nothing of it is left.

    `seconds` is the time limit of each, `pythonpath` are the folders that functions are imported from.
    """

    def __init__(self, seconds: float = 10.0, pythonpath: Sequence[str] = (".",)) -> None:
        self.seconds, self.pythonpath = seconds, list(pythonpath)

    def call(self, function: str, *arguments: Any, **named: Any) -> Any:
        """Return the result of `module:function` as JSON: a tuple becomes a list, keys of a dict become texts.

        The arguments pass through JSON too. Raises SolutionError, whose text begins with the exception's name.
        """
        request = {"function": function, "arguments": arguments, "named": named, "pythonpath": self.pythonpath}
        return self._ask("call", request)["value"]

    def run(self, argv: Sequence[str], stdin: Union[str, bytes] = b"") -> Ended:  # noqa: UP007  Python 3.8
        """Run a program in the folder that the agent left. Raises SolutionError for one that had to be killed."""
        data = stdin.encode("utf-8") if isinstance(stdin, str) else stdin
        reply = self._ask("run", {"argv": list(argv), "stdin": base64.b64encode(data).decode("ascii")})
        return Ended(reply["exit_code"], reply["output"])

    def read(self, path: str) -> bytes:
        """Return a file's text, 8 MB at most. Raises SolutionError for links and anything that is not a file."""
        return base64.b64decode(self._ask("read", {"path": path})["content"])

    def _ask(self, what: str, asked: Any) -> Any:
        with socket.socket(socket.AF_UNIX) as connection:
            _connect(connection, os.environ["AGENTBENCH_SOLUTION"])
            request = json.dumps({"do": what, "seconds": self.seconds, **asked})
            connection.sendall(request.encode("ascii") + b"\n")
            with connection.makefile("rb") as replies:
                reply = json.loads(replies.readline() or b'{"error": "the session has ended"}')
        if "error" in reply:
            raise SolutionError(reply["error"])
        return reply


def _connect(connection: socket.socket, path: str) -> None:
    if len(os.fsencode(path)) <= _LONGEST_NAME:
        connection.connect(path)
        return
    folder = os.open(os.path.dirname(path), os.O_RDONLY)
    try:
        connection.connect(f"/proc/self/fd/{folder}/{os.path.basename(path)}")
    finally:
        os.close(folder)


def _main() -> int:
    try:
        ended = Solution(seconds=1e9).run(sys.argv[1:], sys.stdin.buffer.read())
    except SolutionError as error:
        print(error, file=sys.stderr)
        return 124
    sys.stdout.write(ended.output)
    return ended.exit_code


if __name__ == "__main__":
    sys.exit(_main())
