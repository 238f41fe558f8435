"""Call one function of a solution. Started as a separate program in the solution's sandbox: `python -I -B -c
THIS_TEXT`.

Its stdin is one line of JSON, `{mark, function, arguments, named, pythonpath}`. Its last output to stdout is
the mark and `{value}` or `{error}`; any earlier output is the solution's. Standard library only, Python 3.8 or later.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from typing import Any


def main() -> None:
    """Answer the request on stdin."""
    request = json.loads(sys.stdin.buffer.readline())
    try:
        installed = next((at for at, path in enumerate(sys.path) if path.endswith("-packages")), len(sys.path))
        sys.path[installed:installed] = [os.path.abspath(folder) for folder in request["pythonpath"]]
        module, _, name = request["function"].partition(":")
        found: Any = importlib.import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
        reply = json.dumps({"value": found(*request["arguments"], **request["named"])})
    except BaseException as error:  # noqa: BLE001  a solution may raise anything, SystemExit too
        reply = json.dumps({"error": f"{type(error).__name__}: {error}"})
    os.set_blocking(1, True)  # a program that the solution ran may have changed that
    sys.stdout.flush()
    view = memoryview(f"{request['mark']}{reply}".encode("ascii"))
    while view:
        view = view[os.write(1, view) :]
    os._exit(0)  # not waiting for threads that it left behind


if __name__ == "__main__":
    main()
