"""The programs of this machine that files name: installed ones, or the session's root's own; and what they are told."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

_TOLD = (
    *("PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "TMPDIR", "SYSTEMROOT"),
    *("XDG_RUNTIME_DIR", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "DBUS_SESSION_BUS_ADDRESS"),
    *("DOCKER_HOST", "DOCKER_CONFIG", "DOCKER_CONTEXT", "DOCKER_TLS_VERIFY", "DOCKER_CERT_PATH"),
    *("CONTAINER_HOST", "CONTAINERS_CONF", "CONTAINERS_STORAGE_CONF", "REGISTRY_AUTH_FILE"),
    *("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy"),
    *("SSL_CERT_FILE", "SSL_CERT_DIR"),
)
"""What a container engine needs to find its daemon, its images and the network."""


def program_problem(command: str, folder: str, root: str | None) -> str | None:
    """Return why a file may not name this program, with what to do; None where it may.

    A name without a slash is looked up on this process's PATH by whoever starts it. A path, relative to `folder`, is
    that of a program on PATH, of one beside the running Python, or of one that lies below `root`.
    """
    if os.sep not in command:
        return None
    path = os.path.join(folder, command)
    place = os.path.realpath(os.path.dirname(path))  # of a link in the root, the root says where it leads
    installed = [entry for entry in os.environ.get("PATH", "").split(os.pathsep) if os.path.isabs(entry)]
    if place in {os.path.realpath(each) for each in (*installed, os.path.dirname(sys.executable))}:
        return None
    if root is not None and f"{place}{os.sep}".startswith(f"{os.path.realpath(root).rstrip(os.sep)}{os.sep}"):
        return None
    below = "" if root is None else f", or the path of one below {root}"
    return (
        f"found {command!r}, expected the name of a program that is installed{below}: nothing is started. Put its "
        f"folder on PATH{'' if root is None else ', or the program into that folder'}"
    )


def engine_environment(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return what a container engine that a file names is told of this process's environment: no keys."""
    return {name: environ[name] for name in _TOLD if name in environ}
