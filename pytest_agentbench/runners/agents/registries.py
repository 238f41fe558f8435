"""Ask the registries of npm and PyPI for the newest versions of agents' packages."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlsplit

import httpx2

from pytest_agentbench.bounded.json_files import parse_value
from pytest_agentbench.bounded.replies import bounded_replies
from pytest_agentbench.config.agent_file import Install
from pytest_agentbench.models.connections import tls_context

_NPM, _PYPI = "https://registry.npmjs.org", "https://pypi.org/simple"
_SECONDS = 30.0
_AT_ONCE = 8
_MAX_REPLY = 64 * 2**20
"""Maximum bytes of a reply. PyPI lists all files of all versions."""

_SIMPLE = "application/vnd.pypi.simple.v1+json"
_RELEASE = re.compile(r"\d{1,9}(?:\.\d{1,9})*")
"""A version that is no pre-release, as PyPI and npm name them."""


@dataclass(frozen=True, slots=True)
class Package:
    """A package of an agent, its pinned version, and the URL that answers with its versions."""

    name: str
    pinned: str
    url: str


@dataclass(frozen=True, slots=True)
class Newest:
    """The newest version of a package, or the reason why it is unknown."""

    version: str | None = None
    problem: str | None = None


def find_package(install: Install, environ: Mapping[str, str] = os.environ) -> Package:
    """Return the package of an adapter. Its registry is the one that npm or uv would ask by these variables."""
    if install.npm is not None:
        name = install.npm.rpartition("@")[0]
        registry = environ.get("npm_config_registry") or environ.get("NPM_CONFIG_REGISTRY") or _NPM
        return Package(name, install.version, f"{registry.rstrip('/')}/-/package/{quote(name, safe='')}/dist-tags")
    name = (install.pypi or "").partition("==")[0]
    index = environ.get("UV_DEFAULT_INDEX") or environ.get("UV_INDEX_URL") or environ.get("PIP_INDEX_URL") or _PYPI
    # Indexes list packages by their normalized names
    return Package(name, install.version, f"{index.rstrip('/')}/{re.sub(r'[-_.]+', '-', name).lower()}/")


def list_hosts(packages: Iterable[Package]) -> list[str]:
    """Return the addresses of the registries, without users and passwords."""
    parts = [urlsplit(package.url) for package in packages]
    hosts = (f"{part.scheme}://{part.netloc.rpartition('@')[2]}" for part in parts)
    return list(dict.fromkeys(hosts))


async def find_newest(packages: Sequence[Package]) -> list[Newest]:
    """Return the newest version of each package. Pre-releases do not count."""
    slots = asyncio.Semaphore(_AT_ONCE)
    async with httpx2.AsyncClient(
        timeout=_SECONDS, verify=tls_context(), event_hooks=bounded_replies(_MAX_REPLY)
    ) as client:

        async def ask(package: Package) -> Newest:
            async with slots:
                return await _ask(client, package)

        return await asyncio.gather(*map(ask, packages))


async def _ask(client: httpx2.AsyncClient, package: Package) -> Newest:
    try:
        reply = await client.get(package.url, headers={"accept": f"{_SIMPLE}, application/json"})
    except (httpx2.HTTPError, httpx2.InvalidURL, httpx2.StreamError, OSError) as error:
        return Newest(problem=f"no answer: {error or type(error).__name__}")
    if reply.status_code != httpx2.codes.OK:
        return Newest(problem=f"HTTP {reply.status_code}")
    try:
        version = _read_version(parse_value(reply.content))
    except (ValueError, RecursionError):
        return Newest(problem="the reply is no JSON")
    if version is None:
        return Newest(problem="the reply names no version")
    return Newest(version)


def _read_version(reply: Any) -> str | None:
    """Return npm's `latest`, or the highest release that PyPI lists."""
    if not isinstance(reply, dict):
        return None
    if isinstance(latest := reply.get("latest"), str):
        return latest
    if not isinstance(versions := reply.get("versions"), list):
        return None
    releases = (text for text in versions if isinstance(text, str) and _RELEASE.fullmatch(text))
    return max(releases, key=_parts, default=None)


def _parts(version: str) -> list[int]:
    return [int(part) for part in version.split(".")]


def is_older(pinned: str, newest: str) -> bool:
    """Return whether the pinned version is lower. Versions in other forms than 1.2.3 are compared for equality."""
    if _RELEASE.fullmatch(pinned) and _RELEASE.fullmatch(newest):
        return _parts(pinned) < _parts(newest)
    return pinned != newest
