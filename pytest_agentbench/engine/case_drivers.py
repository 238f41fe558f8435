"""Find the driver of a case, which decides the user's messages of its conversation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from pytest_agentbench.config.case_file import find_conversation_problem
from pytest_agentbench.engine.services import Services, is_ours
from pytest_agentbench.errors import ConfigError
from pytest_agentbench.extensions import find_extension
from pytest_agentbench.records.case import Case

if TYPE_CHECKING:
    from pytest_agentbench.engine.conversations import Driver


class NamedDriver(NamedTuple):
    """A driver, with the name of the case's part that it belongs to."""

    name: str
    drive: Driver

    @property
    def model_roles(self) -> tuple[str, ...]:
        """Return the roles of further models that it asks by `context.client_for(role)`."""
        return tuple(getattr(self.drive, "model_roles", ()))


def find_driver(case: Case) -> NamedDriver | None:
    """Return the driver of one of the case's parts, None without one. Raises ConfigError for two."""
    named = [(name, find_extension("driver", name)) for name in case.parts]
    drivers = [NamedDriver(name, drive) for name, drive in named if drive is not None]
    if len(drivers) > 1:
        names = " and ".join(driver.name for driver in drivers)
        raise ConfigError(
            f"{case.path}:{case.line}:1: found {names}, which both drive the conversation; keep one of them"
        )
    return drivers[0] if drivers else None


def require_conversation(runner: Any, runner_type: str, case: Case) -> None:
    """Raise ConfigError if the runner cannot hold the case's conversation.

    A `test.yaml` is refused by the same rule when it is read. The cases of other sources are made later.
    """
    driver = find_driver(case)
    if driver is None and not case.turns:
        return
    name = None if driver is None else driver.name
    if (problem := find_conversation_problem(runner_type, runner, name)) is not None:
        raise ConfigError(f"{case.path}:{case.line}:1: {problem}")


def driver_identity(services: Services, driver: NamedDriver | None) -> dict[str, Any]:
    """Return the part of a driver in the run's fingerprint: its name, and the code of a plugin's driver."""
    if driver is None:
        return {}
    code = {} if is_ours(driver.drive) else services.identities.part("driver", driver.name, driver.drive)
    return {"driver": {driver.name: code}}
