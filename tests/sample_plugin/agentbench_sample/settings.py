"""Profile section: `shell` of run profiles, which the runner reads and fingerprints cover.

schema_version: 1
run_profile_id: quick
title: Quick
shell: {seconds: 5}
"""

from __future__ import annotations

from pytest_agentbench import ProfileSection, Record


class ShellSettings(Record):
    """How the runner `shell` runs its commands."""

    seconds: float = 10.0
    """Limit of one command."""


SHELL: ProfileSection[ShellSettings] = ProfileSection(
    name="shell",
    of="run_profile",
    model=ShellSettings,
    doc="How the runner shell runs its commands.",
    default=ShellSettings,
    # Another limit is another profile only where it is said: stored runs of profiles without the section stay good.
    fingerprint=lambda settings: settings if settings != ShellSettings() else None,
    # A profile of somebody else's may give less time than the user's own, and never more.
    excess=lambda found, most, guest: (
        [(("seconds",), found.seconds, most.seconds)] if found.seconds > most.seconds else []
    ),
)
