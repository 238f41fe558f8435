"""Names of a run's tools for an agent: addresses of servers, names of tools in requests, and the way back."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from pytest_agentbench.tools.base import Tool

OWN_TOOLS = "tools"
"""Name of the case's own tools in addresses, in place of a server's."""

_MOST_OF_A_SLUG, _MOST_OF_A_NAME, _MOST_OF_A_HASH = 20, 64, 16
_LONGEST = "mcp__{server}__{tool}"
_USUAL = (_LONGEST, "mcp_{server}_{tool}", "{server}__{tool}", "{server}_{tool}", "{server}:{tool}", "{server}.{tool}")
"""Names that programs without an adapter give to tools."""


@dataclass(frozen=True, slots=True)
class ServedTool:
    """A tool of the run. `tool.name` is its id, `Server:tool` or the name of a tool of the case.

    `slug` is its server in addresses, `name` its name there.
    """

    tool: Tool
    slug: str
    name: str


class ServedTools:
    """The tools of a run that its agent gets by MCP, by their servers' slugs.

    `names` is the template of the names in the agent's requests, with `{server}`, `{tool}` and `*` for any text, as a
    hash; None if unknown.
    """

    def __init__(self, tools: Iterable[Tool], servers: Iterable[str], names: str | None = None) -> None:
        tools = tuple(tools)
        own = [tool for tool in tools if ":" not in tool.name]
        self.names = names
        self.slugs = _make_slugs(servers)
        by_slug: dict[str, Iterable[Tool]] = {OWN_TOOLS: own} if own else {}
        for server, slug in self.slugs.items():
            by_slug[slug] = [tool for tool in tools if tool.name.startswith(f"{server}:")]
        self.servers: Mapping[str, Mapping[str, ServedTool]] = {
            slug: {served.name: served for served in self._name_tools(slug, members)}
            for slug, members in by_slug.items()
        }
        self._servers_of_slugs = {slug: server for server, slug in self.slugs.items()}
        templates = (names,) if names is not None else _USUAL
        self._templates = tuple(name for name in templates if "{server}" in name)
        self._patterns = [_compile(template, self.servers) for template in self._templates]

    def describe(self) -> dict[str, str]:
        """Return the ids of the tools by their names in the agent's requests; `slug/name` if these are unknown."""
        template = self.names or "{server}/{tool}"
        return {
            _fill(template, slug, name): served.tool.name
            for slug, members in self.servers.items()
            for name, served in members.items()
        }

    def find_id(self, slug: str, name: str) -> str:
        """Return the id of a server's tool. An unknown tool gets the id that it would have.

        Some agents replace characters of names, so letters and digits decide.
        """
        members = self.servers[slug]
        served = members.get(name)
        if served is None:
            served = next((each for each in members.values() if _drop_marks(each.name) == _drop_marks(name)), None)
        if served is not None:
            return served.tool.name
        if slug == OWN_TOOLS:
            return name
        return f"{self._servers_of_slugs[slug]}:{name}"

    def find_called(self, agent_name: str) -> str | None:
        """Return the id of the tool that a call of the agent's model is certainly for, None for a tool of the agent.

        A call of an unknown tool of a server has the id that the tool would have.
        """
        for template, pattern in zip(self._templates, self._patterns, strict=True):
            if (match := pattern.fullmatch(agent_name)) is None:
                continue
            # A program without an adapter may have a tool of its own that only looks like a server's
            tool_id = self.find_id(match["server"], match["tool"])
            if template == self.names or template.startswith("mcp") or self.has(tool_id):
                return tool_id
        if self._templates:
            return None
        # Without the server in names, only the endpoint's own names tell the agent's tools apart
        return next((self.find_id(slug, agent_name) for slug in self.servers if agent_name in self.servers[slug]), None)

    def has(self, tool_id: str) -> bool:
        """Return whether the run has the tool."""
        return any(served.tool.name == tool_id for members in self.servers.values() for served in members.values())

    def find_missing(self, offered: Iterable[str]) -> Iterator[str]:
        """Yield the slugs of servers that have tools, none of which is called by one of the names `offered`."""
        found = {self.find_called(name) for name in offered}
        for slug, members in self.servers.items():
            if members and found.isdisjoint(served.tool.name for served in members.values()):
                yield slug

    def describe_server(self, slug: str) -> str:
        """Return a server's tools for a message."""
        server = self._servers_of_slugs.get(slug)
        return "the case's own tools" if server is None else f"the tools of the MCP server {server!r}"

    def may_call(self, agent_name: str, tool_id: str) -> bool:
        """Return whether a call of a program without an adapter may be for this tool."""
        return self.names is None and any(
            agent_name in (name, served.tool.name)
            for members in self.servers.values()
            for name, served in members.items()
            if served.tool.name == tool_id
        )

    def name_for_agent(self, tool_id: str, offered: Collection[str]) -> str:
        """Return the name of a tool in the agent's requests, one of those `offered` if one of them fits."""
        for name in offered:
            if self.find_called(name) == tool_id:
                return name
        for name in offered:
            if self.may_call(name, tool_id):
                return name
        server, _, tool = tool_id.rpartition(":")
        slug = self.slugs.get(server, OWN_TOOLS)
        names = [name for name, served in self.servers.get(slug, {}).items() if served.tool.name == tool_id]
        return _fill(self.names or _LONGEST, slug, names[0] if names else tool)

    def _name_tools(self, slug: str, tools: Iterable[Tool]) -> Iterator[ServedTool]:
        taken: set[str] = set()
        template = self.names or _LONGEST
        # An agent that shows no server cannot tell equal tools of two servers apart
        prefix = "" if "{server}" in template else f"{slug}_"
        room = _MOST_OF_A_NAME - len(_fill(template, slug, prefix)) - _MOST_OF_A_HASH * template.count("*")
        for tool in tools:
            plain = re.sub(r"[^A-Za-z0-9_-]", "_", tool.name.partition(":")[2] or tool.name)
            name, number = plain, 0
            while len(name) > room or name in taken:
                number += 1
                name = f"{plain[: room - 1 - len(str(number))]}_{number}"
            taken.add(name)
            yield ServedTool(tool, slug, prefix + name)


def _make_slugs(servers: Iterable[str]) -> dict[str, str]:
    """Return a short name of letters and digits for each server."""
    slugs: dict[str, str] = {}
    taken = {OWN_TOOLS}
    for server in servers:
        plain = re.sub(r"[^A-Za-z0-9]", "", server)[:_MOST_OF_A_SLUG] or "server"
        slug, number = plain, 1
        while slug.lower() in taken:
            number += 1
            slug = f"{plain[: _MOST_OF_A_SLUG - len(str(number))]}{number}"
        taken.add(slug.lower())
        slugs[server] = slug
    return slugs


def _fill(template: str, server: str, tool: str) -> str:
    return template.replace("{server}", server).replace("{tool}", tool)


def _drop_marks(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9]", "", name)


def _compile(template: str, slugs: Iterable[str]) -> re.Pattern[str]:
    """Return the pattern of a template's names. The longest slug counts first, because one may begin with another."""
    either = "|".join(sorted(slugs, key=len, reverse=True)) or r"(?!)"
    pattern = re.escape(template).replace(r"\{server\}", f"(?P<server>{either})").replace(r"\{tool\}", "(?P<tool>.+)")
    pattern = pattern.replace(r"\*", ".+")
    return re.compile(pattern, re.DOTALL)
