"""What grading needs of a session: models to ask, votes that are kept, and a budget."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from pytest_agentbench.engine.budget import Part
from pytest_agentbench.models.cassettes import TapedClient
from pytest_agentbench.records.case import Model
from pytest_agentbench.records.run import Usage

if TYPE_CHECKING:
    from pytest_agentbench.models.client import ChatClient, Endpoints
    from pytest_agentbench.models.scripts import Scripts
    from pytest_agentbench.models.tape import Tape


class Shared(Protocol):
    """What a grader's cases share in a session: asked for by its class, made with the session's services."""

    def __init__(self, services: GradingServices) -> None: ...

    async def close(self) -> None:
        """End what it has opened."""


S = TypeVar("S", bound=Shared)


@dataclass(kw_only=True)
class GradingServices:
    """What all gradings of a session share. `connect` is called on the engine's loop, at the first model that is asked.

    `on_spent(part, usages)` books what was paid, `over_budget(usage)` is why a run that has used so much already may
    ask for nothing more. `asked_anew` are the keys of kept votes that were asked for again. `output` is the session's
    output folder, `subjects` are the files of all that sources could have scored together.
    """

    scripts: Scripts
    connect: Callable[[], Endpoints]
    on_spent: Callable[[Part, list[Usage]], None]
    output: Path
    subjects: tuple[Path, ...] = ()
    over_budget: Callable[[Usage], str | None] = lambda usage: None
    reuse_evaluations: bool = True
    asked_anew: set[str] = field(default_factory=set)
    _endpoints: Endpoints | None = None
    _shared: dict[Any, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._shared = {}

    def shared(self, kind: type[S]) -> S:
        """Return what a grader's cases share in this session: `kind(services)`, made at the first need, closed last."""
        if kind not in self._shared:
            self._shared[kind] = kind(self)
        found: S = self._shared[kind]
        return found

    def client(self, model: Model, tape: Tape | None = None) -> ChatClient:
        """Return a client for the model, through the tape where that is in use for it."""
        if tape is not None and tape.mode(model.model_id) != "off":
            return TapedClient(model, tape, partial(self.client, model))
        if self._endpoints is None:
            self._endpoints = self.connect()
        return self._endpoints.client(model)

    def describe_pauses(self) -> str:
        """Return which endpoints runs wait for, empty where they wait for none."""
        return self._endpoints.describe_pauses() if self._endpoints is not None else ""

    async def close(self) -> None:
        """End what gradings share, and connections."""
        for shared in self._shared.values():
            await shared.close()
        if self._endpoints is not None:
            await self._endpoints.close()
