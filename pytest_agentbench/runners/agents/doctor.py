"""Try an agent twice with a scripted model, and report what it did and what to change in its adapter."""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_agentbench.models.prompts import message_text
from pytest_agentbench.models.tape import canonicalize
from pytest_agentbench.runners.agents.adapter import Adapter, make_agent
from pytest_agentbench.runners.agents.causes import collect_offer, find_problems, list_hosts, list_methods
from pytest_agentbench.runners.agents.differences import OFFER, Difference, find_differences
from pytest_agentbench.runners.agents.fields import AgentFields
from pytest_agentbench.runners.agents.reading import FIELDS
from pytest_agentbench.runners.agents.trial import SERVER, TURNS, Form, Trial, run_trial
from pytest_agentbench.runners.gateway.offers import describe_offer
from pytest_agentbench.runners.gateway.policy import API_TITLES, GatewayPolicy
from pytest_agentbench.secrets.redaction import Redactor
from pytest_agentbench.terminal_text import count_text, shorten_text

if TYPE_CHECKING:
    from pytest_agentbench.config.agent_file import AgentProgram
    from pytest_agentbench.config.roots import ConfigRoot

_SYSTEM_LINES, _OUTPUT_LINES = 3, 10
_MOST_SHOWN = 100
"""Maximum characters of a line in the report."""

_MOST_FILES = 20


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The report of a trial, line by line, and the problems, each with what to change. No problems: it passed."""

    lines: list[str]
    problems: list[str]


def list_forms(program: AgentProgram) -> list[Form]:
    """Return the forms in which the program can run."""
    forms: dict[Form, bool] = {"agent": bool(program.argv), "acp": program.acp is not None}
    return [form for form, is_there in forms.items() if is_there]


def try_agent(adapter: Adapter, form: Form, root: ConfigRoot, sandbox: str) -> Diagnosis:
    """Run the agent twice with the scripted model and report. It has no network, and its files are removed."""
    policy = make_agent(AgentFields(agent=adapter.program.name), adapter).policy()
    with tempfile.TemporaryDirectory(prefix="agentbench-doctor-") as folder:
        trial = asyncio.run(run_trial(adapter, form, root, sandbox, Path(folder)))
        problems = find_problems(trial, adapter.program, policy)
        # A second run of a program that asked nothing or nothing right shows the same
        second = asyncio.run(run_trial(adapter, form, root, sandbox, Path(folder))) if trial.evidence.to_model else None
    differences: list[Difference] = []
    if second is not None:
        differences = find_differences(_comparable(trial, policy), _comparable(second, policy))
        problems += [problem for problem in find_problems(second, adapter.program, policy) if problem not in problems]
        problems += [f"two runs differ in {each.describe()}{_advise(each)}" for each in differences]
    return Diagnosis([*_describe(trial, second, adapter, differences)], problems)


def _advise(difference: Difference) -> str:
    if difference.where == OFFER:
        return (
            "; if it is an MCP server's, the program asked before that server had started, or lost its connection. "
            "Which setting lets it wait?"
        )
    if difference.line is None:
        return "; switch it off, or add a pattern for it to volatile, else recordings are not replayed"
    return f"; add to volatile: {difference.line}"


def _comparable(trial: Trial, policy: GatewayPolicy) -> list[dict[str, Any]]:
    """Return the requests of a trial as cassettes compare them."""
    folder, redactor = trial.workspace or None, Redactor()
    requests = [
        {"messages": asked.messages, "tools": asked.tools, **asked.parameters} for _, asked in trial.evidence.to_model
    ]
    return [policy.drop_moments(canonicalize(request, folder, redactor), TURNS) for request in requests]


def _describe(trial: Trial, second: Trial | None, adapter: Adapter, differences: list[Difference]) -> Iterator[str]:
    """Yield the lines of the report."""
    requests = trial.evidence.requests
    apis: dict[str, Counter[str]] = {}
    for seen in requests:
        title = API_TITLES[seen.route.api] if seen.route.kind in ("ask", "count") else "other"
        apis.setdefault(title, Counter())[f"{seen.place}{'' if seen.status == 200 else f' -> {seen.status}'}"] += 1
    for title, places in apis.items():
        yield f"{title}: " + ", ".join(f"{place} ({count_text(count, 'time')})" for place, count in places.items())
    if not apis:
        yield "requests: none"
    models = Counter(seen.asked.model for seen in requests if seen.asked is not None)
    yield "model names: " + (", ".join(f"{name} ({count_text(n, 'time')})" for name, n in models.items()) or "none")
    yield f"tools offered: {describe_offer(collect_offer(trial))}"
    if trial.mcp is not None:
        yield f"MCP server {SERVER}, asked for: {list_methods(trial)}"
    yield from _list_system(trial)
    for call, result in trial.calls:
        shown = "no result" if result is None else shorten_text(result.content.strip() or "(empty)", _MOST_SHOWN)
        mark = " (error)" if result is not None and result.is_error else ""
        arguments = shorten_text(json.dumps(call.arguments, ensure_ascii=False), _MOST_SHOWN)
        yield f"call: {call.name}{arguments} -> {shown}{mark}"
    source = "reply" if trial.form == "acp" else adapter.program.answer.from_ or "stdout"
    for answer in trial.answers:
        yield f"answer: {shorten_text(str(answer), _MOST_SHOWN)!r} (from {source})"
    yield from (f"warning: {warning}" for warning in trial.warnings)
    counts = ", ".join(f"{name} {getattr(trial.usage, f'{name}_tokens')}" for name in FIELDS)
    yield f"usage: {counts}"
    more = f" and {len(trial.changed) - _MOST_FILES} more" if len(trial.changed) > _MOST_FILES else ""
    yield f"files changed: {', '.join(trial.changed[:_MOST_FILES]) or 'none'}{more}"
    yield f"other hosts: {list_hosts(trial)}"
    for turn in trial.evidence.turns:
        yield from _show_output("stdout" if trial.form == "agent" else "messages", turn.output.stdout)
        yield from _show_output("stderr", turn.output.stderr)
    if second is not None:
        yield f"differences between two runs: {len(differences) or 'none'}"
    seconds = [f"{each.seconds:.1f} s" for each in (trial, second) if each is not None]
    yield f"time: {' and '.join(seconds)}"


def _list_system(trial: Trial) -> Iterator[str]:
    """Yield the first lines of the first system text."""
    texts = [
        message_text(message)
        for _, asked in trial.evidence.to_model
        for message in asked.messages
        if message.get("role") in ("system", "developer") and asked.tools
    ]
    lines = [line for line in (texts[0] if texts else "").splitlines() if line.strip()]
    yield from (f"system: {shorten_text(line, _MOST_SHOWN)}" for line in lines[:_SYSTEM_LINES])


def _show_output(name: str, text: str) -> Iterator[str]:
    lines = text.strip().splitlines()
    if len(lines) > 2 * _OUTPUT_LINES:
        left_out = f"... {len(lines) - 2 * _OUTPUT_LINES} lines ..."
        lines = [*lines[:_OUTPUT_LINES], left_out, *lines[-_OUTPUT_LINES:]]
    yield from (f"{name}: {shorten_text(line, 2 * _MOST_SHOWN)}" for line in lines)
