"""The kit for packs."""

from __future__ import annotations

from pytest_agentbench.errors import ConfigError
from pytest_agentbench.extensions import Addition
from pytest_agentbench.pack import Pack
from pytest_agentbench.seams import FIELDS
from pytest_agentbench.testing.samples import expect


def check_pack(pack: Pack) -> None:
    """Check that all things of a pack can be imported, fit their fields, and have no name that this package has.

    The kits of the seams check what the things do.
    """
    expect(isinstance(pack, Pack), f"found {pack!r}, expected a Pack")
    for field, things in pack.fields.items():
        for name, value in things.items():
            seam = FIELDS[field]
            addition = Addition(seam, name, value, f"the pack {pack.name!r}")
            expect(name not in seam.own_names(), f"{addition}, which exists already; choose another name")
            try:
                addition.thing  # noqa: B018 - raises if it cannot be loaded
            except ConfigError as error:
                raise AssertionError(f"{field}: {error}") from error
