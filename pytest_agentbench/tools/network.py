"""The network policy of web tools, applied to each URL and to each address of its host."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Awaitable, Callable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from pytest_agentbench.config.profiles import NetworkSettings
from pytest_agentbench.errors import AgentbenchError, UnavailableError
from pytest_agentbench.terminal_text import shorten_text

if TYPE_CHECKING:
    import httpx2

InThread = Callable[[Callable[[], Any]], Awaitable[Any]]
"""Runs a function off the event loop."""

Resolve = Callable[[str, int], Awaitable[Sequence[str]]]
"""A resolver from host and port to the host's IP addresses, at least one. Raises OSError if there is none."""

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

_METADATA = frozenset(
    ipaddress.ip_address(text)
    for text in (
        "169.254.169.254",  # AWS, Azure, Google Cloud, OpenStack, ...
        "169.254.170.2",  # AWS ECS
        "169.254.170.23",  # AWS EKS
        "fd00:ec2::254",
        "fd00:ec2::23",
        "fd20:ce::254",  # Google Cloud
        "100.100.100.200",  # Alibaba Cloud
        "168.63.129.16",  # Azure's own services, a public address
        "192.0.0.192",  # Oracle Cloud
    )
)
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
_UNICAST = ipaddress.IPv6Network("2000::/3")
_SPECIAL = tuple(  # entries of IANA's special-purpose registries on which Python versions differ
    ipaddress.ip_network(text)
    for text in (
        "192.0.0.0/24",
        "192.88.99.0/24",  # relays of 6to4
        "2001::/23",  # Teredo and other protocols
        "2001:db8::/32",
        "2002::/16",  # 6to4
        "3fff::/20",
    )
)


_PORTS = {"http": 80, "https": 443}


class RefusedError(AgentbenchError):
    """Raised for a URL or an address that the run profile's network settings refuse."""


def require_web(settings: NetworkSettings, tool: str) -> None:
    """Raise UnavailableError if the profile denies the web altogether."""
    if settings.web == "deny":
        raise UnavailableError(f"{tool} has no access to the web: the run profile has `network: {{web: deny}}`")


def check_url(text: str, settings: NetworkSettings, base: httpx2.URL | None = None) -> httpx2.URL:
    """Return the URL, relative to `base`, after checking scheme, credentials, host and port. Nothing is resolved.

    Raises RefusedError.
    """
    import httpx2

    try:
        url = httpx2.URL(text.strip()) if base is None else base.join(text)
        if url.port is not None and not 0 < url.port < 2**16:
            raise ValueError(f"no port {url.port}")
    except (httpx2.InvalidURL, ValueError) as error:
        raise RefusedError(
            f"found {text[:200]!r}, expected a URL such as https://example.org/page ({error})"
        ) from error
    if url.scheme not in ("http", "https") or not url.raw_host:
        raise RefusedError(
            f"found {text[:200]!r}, expected a URL that begins with http:// or https:// and names a host"
        )
    if url.userinfo:
        raise RefusedError(f"a URL with a user name or password for {host_of(url)} is refused: leave them out")
    if not is_host_allowed(host_of(url), settings):
        hosts = shorten_text(", ".join(settings.hosts), 200)
        raise RefusedError(f"{host_of(url)} is not an allowed host of the run profile ({hosts})")
    return url


def host_of(url: httpx2.URL) -> str:
    """Return the host in the form for resolvers: lower-case ASCII; an IPv6 address without brackets."""
    return url.raw_host.decode("ascii").rstrip(".")


def is_host_allowed(host: str, settings: NetworkSettings) -> bool:
    """Return whether `network.hosts` is empty or names the host."""
    if not settings.hosts:
        return True
    return any(host == name or (name.startswith("*.") and host.endswith(name[1:])) for name in settings.hosts)


async def check_addresses(url: httpx2.URL, settings: NetworkSettings, resolve: Resolve) -> list[str]:
    """Return the addresses of the URL's host. Raises RefusedError if one of them is not allowed.

    OSError and UnicodeError come from `resolve`.
    """
    host = host_of(url)
    addresses = list(await resolve(host, url.port or _PORTS[url.scheme]))
    for address in addresses:
        if problem := find_address_problem(address, settings):
            name = address if address == host else f"{host} ({address})"
            raise RefusedError(f"{name} is refused: {problem}")
    return addresses


def find_address_problem(text: str, settings: NetworkSettings) -> str | None:
    """Return why connections to an IP address are refused, or None."""
    address = _normalize(ipaddress.ip_address(text))
    # Before `allow_private`: a cloud's metadata service hands out the machine's credentials, so no setting allows it
    if address in _METADATA:
        return "it is a metadata service of a cloud"
    if _is_public(address) or any(address in network for network in _parse_networks(settings.allow_private)):
        return None
    return "it is not a public address; the run profile's network.allow_private may name it"


def is_public(text: str) -> bool:
    """Return whether an IP address is public."""
    return _is_public(_normalize(ipaddress.ip_address(text)))


def system_resolver(in_thread: InThread) -> Resolve:
    """Return a resolver that asks the system, off the event loop."""

    async def resolve(host: str, port: int) -> Sequence[str]:
        rows = await in_thread(lambda: socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))
        return list(dict.fromkeys(str(row[4][0]) for row in rows))

    return resolve


def _normalize(address: Address) -> Address:
    """Return the address without a scope, and an IPv4 address in IPv6 notation as IPv4."""
    if isinstance(address, ipaddress.IPv4Address):
        return address
    # The system connects to the IPv4 address that these contain, so that one is checked
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    if address in _NAT64:
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return ipaddress.IPv6Address(int(address))


def _is_public(address: Address) -> bool:
    # Python's `is_global` is true for all unregistered IPv6 addresses, such as 4000::/3, which nobody routes
    if isinstance(address, ipaddress.IPv6Address) and address not in _UNICAST:
        return False
    if address.is_multicast or address.is_reserved or not address.is_global:
        return False
    return not any(address in network for network in _SPECIAL)


@lru_cache(maxsize=64)
def _parse_networks(texts: tuple[str, ...]) -> tuple[ipaddress.IPv4Network | ipaddress.IPv6Network, ...]:
    return tuple(ipaddress.ip_network(text) for text in texts)
