"""Open the gateway of a run whose agent is in this process or in a subprocess."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass

from pytest_agentbench.config.sections import RunnerSettings
from pytest_agentbench.records.case import Model
from pytest_agentbench.runners.base import RunContext, RunEnd
from pytest_agentbench.runners.chat import Requests
from pytest_agentbench.runners.gateway.address import GatewayAddress
from pytest_agentbench.runners.gateway.gateway import Gateway
from pytest_agentbench.runners.gateway.listener import Listener
from pytest_agentbench.runners.gateway.policy import GatewayPolicy


@dataclass(frozen=True, slots=True)
class ListenedGateway:
    """A run's gateway at the session's listener: an `OpenGateway`."""

    gateway: Gateway
    address: GatewayAddress
    _opened: ExitStack

    @property
    def outage(self) -> BaseException | None:
        """Return the reason why no further request is allowed, or None."""
        return self.gateway.outage

    @property
    def fault(self) -> str | None:
        """Return the error of the gateway itself since it was opened, or None."""
        return self.gateway.fault

    def find_end(self, *, answered: bool) -> RunEnd | None:
        """Return how the run ended according to its requests. Raises as `Gateway.find_end` does."""
        return self.gateway.find_end(answered=answered)

    def close(self) -> None:
        """Refuse all further requests. On the event loop."""
        self._opened.close()


def listen_for(gateway: Gateway, model: Model, listener: Listener, *, serial: bool = False) -> ListenedGateway:
    """Return the gateway with its address at the listener. The caller begins its turns.

    `serial`: no other run shares the process.
    """
    opened = ExitStack()
    token = listener.add(gateway)
    opened.callback(listener.remove, token)
    return ListenedGateway(gateway, GatewayAddress(listener.url, token, model.requested_model, serial), opened)


def open_gateway(context: RunContext, listener: Listener) -> ListenedGateway:
    """Open the gateway of a run with a model, and begin its only turn. In any thread."""
    case, client, model = context.case, context.client, context.model
    assert client is not None
    assert model is not None
    settings = RunnerSettings.model_validate(context.settings)
    requests = Requests(case.case_id, client, settings, context.trace, case.runner.overrides)
    gateway = Gateway(
        requests,
        model,
        context.trace,
        settings.request_parameters,
        context.over_budget,
        GatewayPolicy(translates=settings.translates or not context.strict),
        "gateway_partial",  # nothing prevents the agent from calling models elsewhere
        context.variables,
    )
    texts = [message.content for message in (*case.messages, *case.turns) if message.role == "user"]
    listened = listen_for(gateway, model, listener, serial=settings.env == "serial")
    listened._opened.enter_context(gateway.turn(*filter(None, texts)))
    return listened
