"""Servers in a sandbox without network that need one: they fail early, with what to do."""

from __future__ import annotations

import asyncio
import sys
import time

import pytest
from support.docker_here import needs_bubblewrap
from support.mcp_connections import connected, declared_server

from pytest_agentbench.errors import McpServerError
from pytest_agentbench.records.base import SandboxKind
from pytest_agentbench.records.case import McpServer

COMPLAINT = "Error: getaddrinfo EAI_AGAIN registry.npmjs.org"
ASKS = "import urllib.request as u\ntry: u.urlopen('http://server.invalid')\nexcept OSError as e: raise SystemExit(e)"


def start(server: McpServer, kind: SandboxKind = "local", *, offline: bool = True) -> tuple[str, float]:
    """Return what starting the server failed with, "" if it did not, and the seconds that took."""
    begun = time.perf_counter()

    async def main() -> str:
        async with connected(server, kind, offline=offline) as connection:
            try:
                await connection.listing()
            except McpServerError as error:
                return str(error)
            return ""

    return asyncio.run(main()), time.perf_counter() - begun


@pytest.mark.slow
def test_a_server_that_complains_of_the_network_and_hangs_fails_early():
    said, seconds = start(declared_server("--say", COMPLAINT, "--start-seconds", "25"))

    assert "Test: it needs the network, which its sandbox does not have; allow it in" in said
    assert COMPLAINT in said
    assert seconds < 15


@pytest.mark.slow
def test_a_server_that_complains_of_the_network_and_goes_on_is_used():
    assert start(declared_server("--say", COMPLAINT, "--start-seconds", "0.5"))[0] == ""


def test_the_error_of_a_server_without_network_names_the_sandbox():
    said, _ = start(declared_server("--say", COMPLAINT, "--die-at-start"))

    assert "it needs the network, which its sandbox does not have" in said


def test_a_server_that_ends_by_itself_is_not_taken_for_one_that_needs_the_network():
    said, _ = start(declared_server("--say", "no licence", "--die-at-start"))
    online, _ = start(declared_server("--say", COMPLAINT, "--die-at-start"), offline=False)

    assert "it ended before it answered" in said
    assert "it ended before it answered" in online


@needs_bubblewrap
def test_bubblewrap_without_network_is_named():
    said, seconds = start(McpServer(command=sys.executable, args=("-c", ASKS)), "bubblewrap")

    assert "it needs the network, which its sandbox does not have" in said, said
    assert seconds < 15
