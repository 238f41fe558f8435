"""Images of containers: named ones, pulled if they are missing, and those built from a case's Dockerfile."""

from __future__ import annotations

import hashlib
import os
import re
import tarfile
import tempfile
import threading
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_agentbench.errors import ConfigError, SandboxError, UnavailableError
from pytest_agentbench.terminal_text import last_lines
from pytest_agentbench.workspaces.changes import digest_snapshot, take_snapshot
from pytest_agentbench.workspaces.confined import open_file
from pytest_agentbench.workspaces.containers.bounds import BuildBounds
from pytest_agentbench.workspaces.containers.compose_file import list_additions, list_downloads
from pytest_agentbench.workspaces.containers.daemon import Daemon
from pytest_agentbench.workspaces.sandboxes.base import ResourceLimits
from pytest_agentbench.workspaces.sandboxes.images import is_local, not_built
from pytest_agentbench.workspaces.workspace import TreeError, walk_tree

if TYPE_CHECKING:
    from docker.models.images import Image as DockerImage

MADE_HERE = {"pytest-agentbench": "1"}
"""The label of images that later sessions reuse."""

BUILD_SECONDS = 1800
"""Maximum seconds of a pull or a build."""

_BUILD_BYTES = 4 * 2**30
_PACKED = (b"\x1f\x8b", b"BZh", b"\xfd7zXZ\0", b"\x28\xb5\x2f\xfd")
"""First bytes of gzip, bzip2, xz and zstd files."""

_SHOWN_LINES = 20
_SHOWN_CHARACTERS = 8_000
_LAYER = re.compile(r" ---> ([0-9a-f]{12})\n")
"""The builder's line for a finished layer. A command may print such a line, too: the layer that it names is counted."""


@dataclass(frozen=True, slots=True)
class Image:
    """A local image. `volumes` are the paths at which it declares volumes."""

    name: str
    image_id: str
    volumes: tuple[str, ...]


def pull_image(daemon: Daemon, name: str) -> None:
    """Pull the image of that name from its registry. Raises UnavailableError if that fails."""
    from docker.errors import APIError
    from docker.utils import parse_repository_tag

    repository, tag = parse_repository_tag(name)
    # Not by `images.pull`, which drops messages after the start of the transfer; podman reports errors only there
    try:
        lines = list(daemon.client.api.pull(repository, tag or "latest", stream=True, decode=True))
        problem = next((str(line["error"]) for line in lines if "error" in line), None)
    except APIError as error:
        problem = error.explanation or str(error)
    if problem is not None:
        raise UnavailableError(
            f"the image {name!r} is not on this machine and cannot be pulled ({problem}): `{daemon.program} pull` or "
            f"`{daemon.program} load` it, or name another"
        )


class Images:
    """The images of one session. Each is looked up, pulled or built once. For threads: `get` may take minutes."""

    def __init__(self, daemon: Daemon) -> None:
        self._daemon = daemon
        self._lock = threading.Lock()
        self._locks: dict[object, threading.Lock] = {}
        self._results: dict[object, Image | UnavailableError | SandboxError] = {}

    def get(self, image: str | None, dockerfile: Path | None, *, build_network: bool, limits: ResourceLimits) -> Image:
        """Return the image of that name, or of the Dockerfile. The limits apply to the build's commands.

        Raises UnavailableError if it cannot be pulled, SandboxError if it cannot be built, ConfigError for a build
        folder that is too large.
        """
        key = (image, dockerfile, build_network)
        # A lock for each image, so that a slow one does not block the others
        with self._lock:
            lock = self._locks.setdefault(key, threading.Lock())
        with lock:
            if key not in self._results:
                try:
                    if dockerfile:
                        self._results[key] = self._built(dockerfile, build_network, limits)
                    else:
                        self._results[key] = self._named(image or "")
                except (UnavailableError, SandboxError) as error:
                    self._results[key] = error  # other runs get it, too, instead of a second long attempt
            result = self._results[key]
        if isinstance(result, Image):
            return result
        raise result.with_traceback(None)  # many runs raise this exception, and it would collect all their frames

    def _named(self, name: str) -> Image:
        from docker.errors import NotFound

        try:
            return _image(name, self._daemon.client.images.get(name))
        except NotFound as error:
            if is_local(name):
                raise not_built(name, self._daemon.program) from error
        pull_image(self._daemon, name)
        return _image(name, self._daemon.client.images.get(name))

    def _built(self, dockerfile: Path, network: bool, limits: ResourceLimits) -> Image:
        from docker.errors import NotFound
        from filelock import FileLock

        if not network and (downloads := list_downloads(dockerfile)):
            raise ConfigError(
                f"{dockerfile}: found {downloads[0]!r}, expected a plain path of its folder: the build has no network; "
                "put the file there, or set build_network: allow in the run profile's sandbox"
            )
        if (added := list_additions(dockerfile)) and (archive := _archive_in(dockerfile.parent)):
            raise ConfigError(
                f"{dockerfile}: found {added[0]!r} and the archive {archive!r}, expected COPY: ADD unpacks archives "
                "without a limit on their size; COPY it, and unpack it with RUN"
            )
        tag = f"agentbench-case:{build_digest(dockerfile, network=network)[:16]}"
        # Concurrent sessions and workers build it only once
        lock = Path(tempfile.gettempdir(), f"agentbench-build-{os.getuid()}-{tag.rpartition(':')[2]}.lock")
        with FileLock(lock):
            try:
                return _image(tag, self._daemon.client.images.get(tag))
            except NotFound:
                return _image(tag, self._build(dockerfile, tag, network, limits))
            finally:
                lock.unlink(missing_ok=True)  # safe, because waiting and later processes find the image

    def _build(self, dockerfile: Path, tag: str, network: bool, limits: ResourceLimits) -> DockerImage:
        from docker.errors import APIError

        bounds = BuildBounds(self._daemon, limits)
        bounds.begin()
        try:
            lines = self._daemon.client.api.build(
                path=str(dockerfile.parent),
                dockerfile=dockerfile.name,
                tag=tag,
                network_mode=None if network else "none",
                extra_hosts=bounds.extra_hosts,
                labels=MADE_HERE,
                rm=True,
                forcerm=True,
                timeout=BUILD_SECONDS,
                container_limits={"memory": _BUILD_BYTES, "memswap": _BUILD_BYTES},
                use_config_proxy=network,  # its address may contain a password
                decode=True,
            )
            problem, last = follow_build(lines, bounds.count)
        except APIError as error:
            problem, last = error.explanation or str(error), ""
        finally:
            bounds.end()
        if problem is None and bounds.broken is None:
            return self._daemon.client.images.get(tag)
        if problem is None:  # built completely, but over a limit, so it must not be reused
            self._daemon.client.images.remove(tag, force=True)
        if bounds.broken is not None:
            problem = f"{bounds.broken}, the limit of the run profile's sandbox"
        raise SandboxError("\n".join([f"{dockerfile}: the image cannot be built: {problem}", *last.splitlines()]))


def build_digest(dockerfile: Path, *, network: bool) -> str:
    """Return the SHA-256 of an image's sources: the Dockerfile's folder, and whether the build has network.

    Raises ConfigError for a folder that is too large.
    """
    folder = dockerfile.parent
    try:
        content = digest_snapshot(take_snapshot(str(folder)))
    except TreeError as error:
        raise ConfigError(f"{folder}: too large to build an image: {error}; put the Dockerfile into another") from error
    return hashlib.sha256(f"{content} {dockerfile.name} {network}".encode()).hexdigest()


def _archive_in(folder: Path) -> str | None:
    """Return a file of the folder that the daemon would unpack, or None."""
    for entry in walk_tree(str(folder), []):
        if entry.kind == "file":
            with open(open_file(entry.folder, entry.names[-1], linked=True), "rb") as file:
                if _is_archive(file.read(tarfile.BLOCKSIZE)):
                    return entry.path
    return None


def _is_archive(head: bytes) -> bool:
    if head.startswith(_PACKED):
        return True
    try:
        tarfile.TarInfo.frombuf(head, "utf-8", "surrogateescape")
    except tarfile.HeaderError:
        return False
    return True


def _image(name: str, image: DockerImage) -> Image:
    volumes: dict[str, Any] = image.attrs["Config"].get("Volumes") or {}
    return Image(name, str(image.id), tuple(volumes))


def follow_build(log: Generator[dict[str, Any]], count: Callable[[str], bool] | None = None) -> tuple[str | None, str]:
    """Return why a build failed, or None, and the end of its output, which may be endless.

    `count` gets the id of each new layer. If it returns False, the build is aborted before its next step.
    """
    deadline = time.monotonic() + BUILD_SECONDS
    last, problem = "", None
    for line in log:  # read to its end, otherwise its connection stays open
        text = str(line.get("stream", ""))
        last = (last + text)[-_SHOWN_CHARACTERS:]
        if count is not None and (layer := _LAYER.fullmatch(text)) and not count(layer[1]):
            log.close()
            return "it is too large", ""
        if "error" in line:
            problem = str(line["error"])
        if time.monotonic() > deadline:
            return f"not built within {BUILD_SECONDS} s", ""
    return problem, last_lines(last, _SHOWN_LINES)
