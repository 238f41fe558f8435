"""Serve S3 on loopback by rclone: a bucket for each folder of a folder.

with S3Server(tmp_path) as server:
    ...  # server.environ lets s3fs find it; server.url("bench") is a store in its only bucket
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

BUCKET = "bench"
KEY, SECRET = "ACCESSKEYOFTESTS", "secret-of-tests-9f8e7d"
_ADDRESS = re.compile(r"\[http://127\.0\.0\.1:(\d+)/\]")


class S3Server:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / BUCKET).mkdir(parents=True, exist_ok=True)
        self.port = 0
        self._process: subprocess.Popen[str] | None = None

    @property
    def environ(self) -> dict[str, str]:
        """Return the variables with which s3fs finds the server and its key."""
        endpoint = f"http://127.0.0.1:{self.port}"
        return {"AWS_ENDPOINT_URL": endpoint, "AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET}

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def url(self, prefix: str) -> str:
        return f"s3://{BUCKET}/{prefix}"

    def names(self, prefix: str) -> list[str]:
        """Return the names of the objects of a store."""
        root = self.folder / BUCKET / prefix
        return sorted(path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file())

    def __enter__(self) -> S3Server:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Start the server, on its earlier port if it had one."""
        command = [_program(), "serve", "s3", "--auth-key", f"{KEY},{SECRET}", "--addr", f"127.0.0.1:{self.port}"]
        command += ["--config", "", "--no-modtime", str(self.folder)]
        self._process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        assert self._process.stderr is not None
        said = []
        for line in self._process.stderr:
            said.append(line)
            if found := _ADDRESS.search(line):
                self.port = int(found[1])
                return
        raise RuntimeError("".join(said))

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None


def _program() -> str:
    found = shutil.which("rclone", path=sysconfig.get_path("scripts")) or shutil.which("rclone")
    assert found is not None, f"no rclone beside {sys.executable}: it comes with the dependency group dev"
    return found
