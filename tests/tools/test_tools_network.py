"""Which URLs and addresses web tools may reach: nothing here is ever connected to."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import httpx2
import pytest
from pydantic import ValidationError

from pytest_agentbench.config.profiles import NetworkSettings
from pytest_agentbench.tools.network import RefusedError, check_addresses, check_url, find_address_problem

PUBLIC = NetworkSettings()

REFUSED = [
    *("127.0.0.1", "127.8.9.1", "0.0.0.0", "10.0.0.1", "172.16.3.4", "192.168.1.1", "100.64.0.1", "198.18.0.1"),
    *("169.254.0.7", "192.0.0.8", "192.0.2.1", "192.88.99.1", "224.0.0.1", "239.1.2.3", "240.0.0.1", "255.255.255.255"),
    *(
        "::",
        "::1",
        "fc00::1",
        "fd12:3456::1",
        "fe80::1",
        "fe80::1%eth0",
        "fec0::1",
        "ff02::1",
        "2001:db8::1",
        "3fff::1",
    ),
    *("::ffff:127.0.0.1", "::ffff:10.0.0.1", "::127.0.0.1", "::8.8.8.8"),  # IPv4 in IPv6: mapped, compatible
    *("64:ff9b::7f00:1", "64:ff9b::a00:1", "64:ff9b:1::808:808"),  # NAT64
    *("2002:7f00:1::1", "2002:808:808::1", "2001:0:4136:e378:8000:63bf:3fff:fdd2"),  # 6to4, Teredo
]
METADATA = [
    *("169.254.169.254", "169.254.170.2", "fd00:ec2::254", "100.100.100.200", "168.63.129.16", "192.0.0.192"),
    *("::ffff:169.254.169.254", "64:ff9b::a9fe:a9fe", "::ffff:168.63.129.16"),
]


@pytest.mark.parametrize("address", [*REFUSED, *METADATA])
def test_an_address_that_is_not_public_is_refused(address: str) -> None:
    assert find_address_problem(address, PUBLIC) is not None


@pytest.mark.parametrize(
    "address", ["93.184.216.34", "8.8.8.8", "2606:4700::1111", "::ffff:8.8.8.8", "64:ff9b::808:808"]
)
def test_public_addresses_are_not(address: str) -> None:
    assert find_address_problem(address, PUBLIC) is None


def test_a_profile_may_allow_private_networks_but_never_metadata_services() -> None:
    everything = NetworkSettings(allow_private=("0.0.0.0/0", "::/0"))
    assert [address for address in REFUSED if find_address_problem(address, everything)] == []
    assert [address for address in METADATA if not find_address_problem(address, everything)] == []
    one = NetworkSettings(allow_private=("10.1.0.0/16",))
    assert find_address_problem("10.1.2.3", one) is None
    assert find_address_problem("::ffff:10.1.2.3", one) is None
    assert find_address_problem("10.2.0.1", one) is not None


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("ftp://example.org/x", "begins with http:// or https://"),
        ("file:///etc/passwd", "begins with http:// or https://"),
        ("//example.org/x", "begins with http:// or https://"),
        ("http:///x", "names a host"),
        ("example.org", "begins with http:// or https://"),
        ("http://me:pass@example.org/", "a user name or password for example.org is refused"),
        ("http://good.example\\@evil.example/", "a user name or password"),
        ("http://a\nb/", "expected a URL such as"),
        ("http://example.org:99999/", "expected a URL such as"),
        ("http://１２７.0.0.1/", "expected a URL such as"),
    ],
)
def test_urls_that_are_none_of_the_web(url: str, problem: str) -> None:
    with pytest.raises(RefusedError, match=problem) as error:
        check_url(url, PUBLIC)
    assert "pass@" not in str(error.value)


def test_hosts_are_names_or_all_below_one() -> None:
    settings = NetworkSettings(hosts=("Example.org.", "*.python.org", "127.0.0.1"))
    for good in ("http://example.org/", "http://EXAMPLE.ORG./x", "https://docs.python.org/3", "http://127.0.0.1:80/"):
        assert check_url(good, settings)
    for bad in ("http://a.example.org/", "http://python.org/", "http://evilpython.org/", "http://python.org.evil.org/"):
        with pytest.raises(RefusedError, match="not an allowed host of the run profile"):
            check_url(bad, settings)


@pytest.mark.parametrize(
    ("field", "value", "expected"),
    [
        ("hosts", "https://example.org", "without scheme, port and path"),
        ("hosts", "example.org:80", "without scheme, port and path"),
        ("hosts", "*", "expected a host"),
        ("hosts", "exämple.org", "expected a host"),
        ("allow_private", "10.0.0.1/8", "host bits set"),
        ("allow_private", "localhost", "expected an address or a network"),
        ("web", "all", "'public' or 'deny'"),
    ],
)
def test_invalid_settings_are_errors_with_the_expected_value(field: str, value: str, expected: str) -> None:
    with pytest.raises(ValidationError, match=expected):
        NetworkSettings.model_validate({field: value if field == "web" else [value]})


@pytest.mark.parametrize(
    "host", ["127.1", "0x7f.0.0.1", "2130706433", "017700000001", "localhost", "localhost.", "[::1]"]
)
def test_other_spellings_of_loopback_are_refused_by_the_address_they_resolve_to(host: str) -> None:
    asked: list[str] = []

    async def resolve(name: str, port: int) -> Sequence[str]:
        found = await asyncio.get_running_loop().getaddrinfo(name, port)
        asked.append(name)
        return [str(each[4][0]) for each in found]

    with pytest.raises(RefusedError, match="is refused: it is not a public address"):
        asyncio.run(check_addresses(check_url(f"http://{host}/", PUBLIC), PUBLIC, resolve))
    assert asked == [host.strip("[].")]


def test_one_private_address_among_public_ones_refuses_the_name() -> None:
    async def resolve(name: str, port: int) -> Sequence[str]:
        assert (name, port) == ("two.example", 443)
        return ["93.184.216.34", "10.0.0.1"]

    with pytest.raises(RefusedError, match=r"two\.example \(10\.0\.0\.1\) is refused"):
        asyncio.run(check_addresses(httpx2.URL("https://two.example/"), PUBLIC, resolve))
