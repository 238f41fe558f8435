"""What `agentbench doctor` has to say of one thing."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that cases may need: `works` is None where nothing was tried. `said` names what to do too.

    `needed` says that a case or a judge under the examined profiles cannot do without it, `untried` that only --live
    tells whether it works.
    """

    area: str
    name: str
    works: bool | None
    said: str
    needed: bool = False
    untried: bool = False

    @property
    def lacking(self) -> bool:
        """Whether it is needed and does not work."""
        return self.needed and self.works is False
