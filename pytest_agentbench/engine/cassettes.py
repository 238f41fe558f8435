"""Cassettes of a job: whether its run and its verdict are recorded, replayed or made without a cassette.

These functions are called only if a model or the session has a cassette mode (`Services.uses_cassettes`).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal

from pytest_agentbench.engine.attempt import Attempt
from pytest_agentbench.engine.grading import AskingGrader
from pytest_agentbench.engine.job import CHAT_JUDGE
from pytest_agentbench.errors import UnwritableError
from pytest_agentbench.records.base import RunStatus
from pytest_agentbench.records.case import Case, CassetteMode, Model
from pytest_agentbench.records.run import RunArtifact
from pytest_agentbench.runners.base import agent_name
from pytest_agentbench.tools.builtin import WEB_FETCH, WEB_SEARCH

if TYPE_CHECKING:
    from pytest_agentbench.models.tape import Tape


Taped = Literal["recorded", "replayed"] | None
_READING = frozenset({"replay", "auto"})


def tape_of_run(attempt: Attempt, servers: Iterable[str] = ()) -> Tape | None:
    """Return the cassette of the job's run, None if no model uses it. Reads no file yet.

    The web tools and the MCP servers with these names are recorded and replayed like the run's model.
    """
    services = attempt.services
    from pytest_agentbench.tools.mcp.servers import cassette_server_name

    plan, agent = attempt.plan, attempt.values.agent
    modes = _modes(attempt)
    if plan.predictions is not None:
        # Predictions have been answered already; their judges may still be taped
        modes[plan.model_id] = "off"
    elif plan.model is None:
        modes[agent_name(agent)] = services.cassettes.mode
    roles = attempt.run_plan.roles.values()
    modes |= {model.model_id: services.cassettes.mode_of(model) for model in roles}
    if {*modes.values(), services.cassettes.mode} == {"off"}:
        return None
    subject = plan.model_id if plan.model is not None or plan.predictions is not None else agent_name(agent)
    others = (WEB_SEARCH, WEB_FETCH, *map(cassette_server_name, servers))
    # A run is replayed as a whole: an answer of the model to a page that has changed since would fit nothing
    modes |= dict.fromkeys(others, modes.get(subject, services.cassettes.mode))
    asking = [grader for grader in attempt.graders if isinstance(grader, AskingGrader)]
    modes |= {name: services.cassettes.mode for grader in asking for name in grader.others_asked}
    from pytest_agentbench.models.tape import make_tape

    place = plan.name_place(subject)
    tape = make_tape(services.cassettes, attempt.case, subject, attempt.job.repetition, modes, place)
    tape.run_models = (subject, *(model.model_id for model in roles if not model.scripted))
    return tape


def run_cassette(attempt: Attempt, models: Sequence[Model]) -> dict[str, Any]:
    """Return the cassette's part of the run's fingerprint, {} unless the run is replayed.

    `models` are the run's own model and the models of its roles.
    """
    modes = {attempt.services.cassettes.mode_of(model) for model in models}
    if attempt.plan.predictions is not None or not _READING.intersection(modes):
        return {}
    return {"cassette": _digest(attempt, models[0].model_id)}


def verdict_cassette(attempt: Attempt, artifact: RunArtifact) -> dict[str, Any]:
    """Return the cassette's part of the verdict's fingerprint, {} unless a judge is replayed."""
    if not _READING.intersection(_judges_modes(attempt)):
        return {}
    return {"cassette": _digest(attempt, str(artifact.model["model_id"]))}


def _digest(attempt: Attempt, model_id: str) -> str | None:
    place = attempt.plan.name_place(model_id)
    return attempt.services.cassettes.digest(attempt.case, place, attempt.job.repetition)


def records_run(tape: Tape) -> bool:
    """Return whether the run is made and recorded again, even if it is stored."""
    return "record" in map(tape.mode, tape.run_models)


def records_verdict(attempt: Attempt) -> bool:
    """Return whether the verdict is made and recorded again, even if it is stored."""
    return "record" in _judges_modes(attempt)


def replays_run(tape: Tape, artifact: RunArtifact) -> bool:
    """Return whether a stored run without its verdict is made again: that costs nothing and a cassette is written
    whole.
    """
    return artifact.cassette is not None and not _READING.isdisjoint(map(tape.mode, tape.run_models))


def replays(tape: Tape) -> bool:
    """Return whether answers of all models of the run may come from a cassette, which cost nothing."""
    return _READING.issuperset(map(tape.mode, tape.run_models))


def run_is_free(tape: Tape) -> bool:
    """Return whether a cassette alone answers the run."""
    return {*map(tape.mode, tape.run_models)} == {"replay"}


def verdict_is_free(attempt: Attempt) -> bool:
    """Return whether cassettes alone answer for the judges."""
    return _judges_modes(attempt) == {"replay"}


@contextlib.contextmanager
def complete(tape: Tape) -> Iterator[None]:
    """Raise the tape's failures in the block, for example a missing answer, even if an agent or a judge caught them."""
    try:
        yield
    except Exception:
        tape.require_complete()
        raise
    tape.require_complete()


@contextlib.contextmanager
def kept(tape: Tape) -> Iterator[None]:
    """Raise like `complete`, and always write the answers that the block recorded."""
    with complete(tape):
        try:
            yield
        except asyncio.CancelledError:
            tape.forget_cut_off()
            raise
        finally:
            tape.save()


@contextlib.contextmanager
def run_kept(tape: Tape) -> Iterator[None]:
    """Raise like `complete`, and write the answers of an interrupted run, from which it can be resumed.

    An interrupted new recording is not written: the older cassette stays.
    """
    with complete(tape):
        try:
            yield
        except asyncio.CancelledError:
            # An `auto` cassette grows with each paid answer; half of a new recording must not replace a complete
            # cassette
            if not records_run(tape):
                tape.forget_cut_off()
                tape.save()
            raise


def run_ended(tape: Tape, case: Case, status: RunStatus, elapsed: float) -> tuple[float, Taped, UnwritableError | None]:
    """Write the recorded answers. Return the run's seconds, its state, and the error if the cassette is not writable.

    The error is raised when the run itself is stored. A new recording that an outage ended is not written: the older
    cassette stays.
    """
    if tape is None:
        return elapsed, None, None
    seconds, state = tape.settle_seconds(elapsed), tape.take_state()
    # An outage must not replace a cassette that is whole by a torso
    if status != "provider_error" or status in case.expects_status or not records_run(tape):
        try:
            tape.save()
        except UnwritableError as error:
            return seconds, state, error
    return seconds, state, None


def _modes(attempt: Attempt) -> dict[str, CassetteMode]:
    models = (attempt.plan.model, *attempt.plan.judges.values(), *attempt.job.judges)
    return {model.model_id: attempt.services.cassettes.mode_of(model) for model in models if model is not None}


def _judges_modes(attempt: Attempt) -> set[CassetteMode]:
    """Return the cassette modes of all judges; judges of plugins have the session's mode."""
    modes = {
        attempt.services.cassettes.mode_of(model) for model in (*attempt.plan.judges.values(), *attempt.job.judges)
    }
    if any(judge.type != CHAT_JUDGE for judge in attempt.plan.evaluation_profile.judges):
        # A plugin's judge names no model whose own mode could differ
        modes.add(attempt.services.cassettes.mode)
    return modes
