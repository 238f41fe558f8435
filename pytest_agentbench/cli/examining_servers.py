"""The MCP servers that cases and profiles name: whether they are declared, and can be started here. None is."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence

from pytest_agentbench.cli.findings import Finding
from pytest_agentbench.config import ConfigRoot, RunProfile, suggest
from pytest_agentbench.errors import ConfigError
from pytest_agentbench.records import Case, McpServer, SandboxSettings
from pytest_agentbench.tools.mcp import server_refusal
from pytest_agentbench.tools.mcp.launching import problem

_AREA = "MCP servers"


def examine_servers(cases: Sequence[Case], root: ConfigRoot, profiles: Sequence[RunProfile]) -> Iterator[Finding]:
    """Each server once: those of a profile, then those that the cases declare or name."""
    found: dict[str, Finding] = {}
    for profile in profiles:
        for name, server in profile.mcp_servers.items():
            label = f"{profile.run_profile_id}/{name}"
            found[label] = _finding(label, name, server, root, profile)
        for case in cases:
            for finding in _of_case(case, root, profile):
                found.setdefault(finding.name, finding)
    yield from found.values()


def _of_case(case: Case, root: ConfigRoot, profile: RunProfile) -> Iterator[Finding]:
    """The servers that the case has under the profile, beside the profile's own."""
    own = {name: server for name, server in case.mcp_servers.items() if server is not None}
    for name, server in own.items():
        yield _finding(f"{case.case_id}/{name}", name, server, root, profile)
    named = sorted(_named(case, profile) - own.keys() - profile.mcp_servers.keys())
    try:
        declared = root.mcp_servers(case.path) if named else {}
    except ConfigError as error:
        yield Finding(_AREA, "servers files", False, str(error), needed=True)
        return
    for name in named:
        yield _finding(name, name, declared[name], root, profile) if name in declared else _undeclared(name, declared)


def _named(case: Case, profile: RunProfile) -> set[str]:
    """The servers of the case by name, as far as its file says."""
    if case.mcp_task is None:
        return {*case.mcp_servers}
    planner = profile.planner
    offered = case.mcp_task.distraction_servers[: planner.distraction_servers]
    return {*case.mcp_servers, *offered, *planner.resident_servers}


def _finding(label: str, name: str, server: McpServer, root: ConfigRoot, profile: RunProfile) -> Finding:
    if (refused := server_refusal(name, server, root, profile)) is not None:
        return Finding(_AREA, label, False, refused, needed=True)
    if server.command is None:
        return Finding(_AREA, label, None, f"is at {server.url}; it is asked when a run needs it", needed=True)
    sandbox = server.sandbox or profile.sandbox
    kind = sandbox.type if isinstance(sandbox, SandboxSettings) else sandbox
    missing = problem(server, os.environ, "docker" if kind == "docker" else "local")
    return Finding(_AREA, label, missing is None, missing or server.command, needed=True)


def _undeclared(name: str, declared: Mapping[str, McpServer]) -> Finding:
    said = f"no servers.yaml, commands.json or run profile declares it{suggest(name, declared.keys())}"
    return Finding(_AREA, name, False, said, needed=True)
