"""Store the tools of servers for later sessions, and keep the servers that all runs of a session share."""

from __future__ import annotations

import asyncio
import hashlib
import importlib
import json
import logging
import os
import shutil
import sys
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pydantic import ValidationError

from pytest_agentbench.bounded.files import read_file
from pytest_agentbench.bounded.writing import write_atomically
from pytest_agentbench.errors import AgentbenchError, McpCallError, McpServerError
from pytest_agentbench.records.base import Record
from pytest_agentbench.records.case import McpServer
from pytest_agentbench.secrets.redaction import Redactor
from pytest_agentbench.tools.mcp.connection import Lives
from pytest_agentbench.tools.mcp.launching import ServerSandboxes
from pytest_agentbench.tools.mcp.servers import CallResult, Listing
from pytest_agentbench.workspaces.sandboxes.base import SandboxSpec, programs_of

if TYPE_CHECKING:
    from pytest_agentbench.tools.mcp.connection import Connection


CATALOGUES = "mcp/catalogues"
"""Folder of listings in the output folder."""

_FORMAT = 3
"""Version of the stored listings, a part of every key. Raise it when their meaning changes."""

_WRITTEN_SUFFIXES = (".log", ".db", ".db3", ".sqlite", ".sqlite3")

_logger = logging.getLogger(__name__)


class CatalogueKey(NamedTuple):
    """The key of a listing: digests of a server's definition and of its program, None for a missing program."""

    definition: str
    program: str | None


class _StoredListing(Record):
    """A listing, and the digest of the server's program."""

    program: str | None
    listing: Listing


class Catalogues:
    """Listings of servers, in a folder that later sessions read, too. For one event loop."""

    def __init__(self, folder: Path, redactor: Redactor) -> None:
        self._folder, self._redactor = folder, redactor
        self._stored: dict[str, _StoredListing] = {}
        self._pending: dict[CatalogueKey, asyncio.Future[McpServerError | None]] = {}

    def get(self, key: CatalogueKey) -> Listing | None:
        """Return the stored listing, or None if it is missing or broken. A missing program counts as unchanged."""
        stored = self._stored.get(key.definition) or self._read(key.definition)
        if stored is not None and key.program in (stored.program, None):
            return stored.listing
        return None

    def put(self, key: CatalogueKey, listing: Listing) -> Listing:
        """Store a listing and return it in the form that is offered: without secrets.

        If it cannot be written, it stays in memory.
        """
        stored = _StoredListing(program=key.program, listing=listing)
        document = json.dumps(self._redactor.value(stored.model_dump()))
        # Read back from the redacted document, so that this session offers the same as later ones
        self._stored[key.definition] = stored = _StoredListing.model_validate_json(document)
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            write_atomically(str(self._folder), f"{key.definition}.json", document.encode("ascii"))
        except OSError as error:
            _logger.warning("%s: the tools of MCP servers cannot be stored for later sessions: %s", self._folder, error)
        return stored.listing

    def _read(self, definition: str) -> _StoredListing | None:
        try:
            stored = _StoredListing.model_validate_json(read_file(self._folder / f"{definition}.json"))
        except (OSError, ValidationError):
            return None
        return self._stored.setdefault(definition, stored)

    async def listing(self, key: CatalogueKey, ask: Callable[[], Awaitable[Listing]]) -> Listing:
        """Return the stored listing, or get it by `ask`. Of several concurrent calls only one asks.

        Raises McpServerError if that fails.
        """
        while (stored := self.get(key)) is None:
            pending = self._pending.get(key)
            if pending is None:
                return await self._ask_once(key, ask)
            error = await asyncio.shield(pending)
            if error is not None:
                raise McpServerError(str(error)) from error
        return stored

    async def _ask_once(self, key: CatalogueKey, ask: Callable[[], Awaitable[Listing]]) -> Listing:
        answer = self._pending[key] = asyncio.get_running_loop().create_future()
        failed = None
        try:
            return self.put(key, await ask())
        except McpServerError as error:
            failed = error
            raise
        finally:  # after a cancellation the next call asks
            del self._pending[key]
            answer.set_result(failed)


class CataloguedServer:
    """A server whose tools come from the catalogue, so that only its first call starts it."""

    def __init__(self, connection: Connection, catalogues: Catalogues, key: CatalogueKey) -> None:
        self._connection, self._catalogues, self._key = connection, catalogues, key

    async def listing(self) -> Listing:
        """Implement `ToolServer`."""
        return await self._catalogues.listing(self._key, self._ask_server)

    async def call(self, tool: str, arguments: Mapping[str, Any], seconds: float | None = None) -> CallResult:
        """Implement `ToolServer`."""
        await _import_library()
        try:
            result = await self._connection.call(tool, arguments, seconds)
        except McpCallError:
            await self._renew_listing()
            raise
        await self._renew_listing()
        return result

    async def close(self) -> None:
        """Implement `ToolServer`."""
        await self._connection.close()

    async def _ask_server(self) -> Listing:
        await _import_library()
        return await self._connection.listing()

    async def _renew_listing(self) -> None:
        """List the tools again for later runs if the started server has another version than the catalogue."""
        version, stored = self._connection.version, self._catalogues.get(self._key)
        if version is None or stored is None or version == stored.server_version:
            return
        try:
            self._catalogues.put(self._key, await self._connection.listing())
        except AgentbenchError as error:
            _logger.warning("the tools of its version %s are not known: %s", version, error)


async def _import_library() -> None:
    """Import the library off the event loop: it takes half a second, and other runs should continue."""
    if "mcp" not in sys.modules:
        await asyncio.to_thread(importlib.import_module, "pytest_agentbench.tools.mcp.session")


def make_catalogue_key(
    name: str, server: McpServer, spec: SandboxSpec | None, environ: Mapping[str, str]
) -> CatalogueKey:
    """Return a key of everything that can change a server's listing: its name, definition, program and files.

    `spec` is the sandbox of its program, None for a server without a program. An image is identified by its name.
    """
    definition: dict[str, Any] = {
        "format": _FORMAT,
        "name": name,
        "server": server.model_dump(exclude={"scope", "timeout_seconds", "sandbox", "category", "exclude_tools"}),
        "environment": {name: environ.get(name) for name in server.env_from},
        "sandbox": None if spec is None else [spec.kind, spec.image, spec.network],
    }
    return CatalogueKey(_digest(definition), _digest_program(server, spec, environ))


def list_argument_files(server: McpServer) -> list[str]:
    """Return the files among a server's arguments: scripts, settings, data.

    Paths are absolute. Logs and databases are left out, because the server writes them. Relative paths of a server
    without a `cwd` belong to the run's workspace, so they are left out, too.
    """
    paths = (os.path.join(server.cwd or "", argument) for argument in server.args)
    return [path for path in paths if os.path.isabs(path) and not path.endswith(_WRITTEN_SUFFIXES) and _is_file(path)]


def _is_file(path: str) -> bool:
    try:
        return os.path.isfile(path)
    except ValueError:  # a null character
        return False


def _digest_program(server: McpServer, spec: SandboxSpec | None, environ: Mapping[str, str]) -> str | None:
    """Return a digest of the server's program and files, or None if the program is missing."""
    if server.command is None or spec is None:
        return _digest([])
    files = [_stamp_file(path) for path in list_argument_files(server)]
    if programs_of(spec.kind) == "image":
        return _digest(files)
    command = server.command
    if os.path.dirname(command):
        command = os.path.join(server.cwd or "", command)
    program = shutil.which(command, path=environ.get("PATH"))
    if program is None:
        return None
    return _digest([_stamp_file(program), *files])


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def _stamp_file(path: str) -> list[Any] | None:
    """Return a stamp that changes with the file's content, or None if the file is missing."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    # Not a hash: a server's data may have gigabytes, and every session would read them
    return [path, status.st_size, status.st_mtime_ns]


class SessionServers:
    """The servers of scope `session` and their sandboxes. No run can stop them."""

    def __init__(self, sandboxes: ServerSandboxes) -> None:
        self.sandboxes = sandboxes
        self._lives: dict[CatalogueKey, Lives] = {}

    def lives(self, key: CatalogueKey) -> Lives:
        """Return the sessions of the server with that key."""
        return self._lives.setdefault(key, Lives())

    async def close(self) -> None:
        """Stop them all. Never raises; may be called twice."""
        await asyncio.gather(*(lives.end() for lives in self._lives.values()))
        await self.sandboxes.stop()
