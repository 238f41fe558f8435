"""The control folder: what this machine gives an OpenClaw container, which can read it and not write."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType

from pytest_agentbench.errors import SandboxError
from pytest_agentbench.workspaces import Mount, Sandboxes

CONTROL = "/run/agentbench"
"""Where the folder lies in the container."""

CONFIG_NAME = "openclaw.json"
STATE, HOME = "/tmp/openclaw", "/tmp/home"  # noqa: S108 - the container's, which is the run's private one

ENVIRONMENT = MappingProxyType(
    {
        "HOME": HOME,
        "OPENCLAW_STATE_DIR": STATE,
        "OPENCLAW_CONFIG_PATH": f"{CONTROL}/{CONFIG_NAME}",
        "NO_COLOR": "1",
    }
)
"""All the variables that OpenClaw gets beside the container's own."""


@contextmanager
def control_folder(sandboxes: Sandboxes) -> Iterator[Path]:
    """A fresh control folder, below the session's own, which others cannot enter. Raises SandboxError."""
    try:
        folder = Path(tempfile.mkdtemp(prefix="openclaw-", dir=sandboxes.workspaces.session_folder()))
        folder.chmod(0o755)  # the container's user is another one
    except OSError as error:
        raise SandboxError(
            f"no folder for OpenClaw's configuration: {error}; free space in the temporary folder or set TMPDIR"
        ) from error
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


def furnish(folder: Path, name: str, content: bytes) -> None:
    """Writes a file there that the container's user can read, whatever the umask. Raises SandboxError."""
    try:
        (folder / name).write_bytes(content)
        (folder / name).chmod(0o644)
    except OSError as error:
        raise SandboxError(f"cannot write what OpenClaw is to read: {error}") from error


def mount_of(folder: Path) -> Mount:
    """The folder as the container sees it."""
    return Mount(folder, CONTROL)
