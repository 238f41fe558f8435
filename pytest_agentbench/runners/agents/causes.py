"""Name the causes of a failed trial, and what to write into the adapter."""

from __future__ import annotations

import fnmatch
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from typing import Any

from pytest_agentbench.config.agent_file import AgentProgram, McpPlace
from pytest_agentbench.models.prompts import message_text
from pytest_agentbench.runners.agents.evidence import SeenTurn
from pytest_agentbench.runners.agents.trial import ANSWERS, FILE, MODEL, SERVER, TOOL, TURNS, Trial
from pytest_agentbench.runners.gateway.offers import OfferedTool, describe_offer, read_offer
from pytest_agentbench.runners.gateway.policy import GatewayPolicy, describe_apis
from pytest_agentbench.terminal_text import count_text, last_lines, shorten_text

_SERVED = ("/v1/chat/completions", "/v1/responses", "/v1/messages", "/v1beta/models/MODEL:generateContent")
_LAST_LINES = 5
_PER_REQUEST = {"input_tokens": 11, "cached_tokens": 2, "output_tokens": 3, "reasoning_tokens": 1}


def find_problems(trial: Trial, program: AgentProgram, policy: GatewayPolicy) -> list[str]:
    """Return the causes of a trial's failure, [] if it passed. Effects are left out if there is a cause."""
    causes = [*_find_refused(trial, program), *_find_hosts(trial)]
    if trial.problem is not None:
        causes += [*_find_missing_finish(trial, program)] or [trial.problem]
    if not causes:
        causes += [*_find_silence(trial)]
    if not causes:
        causes += [*_find_helpers(trial, policy), *_find_tools(trial, program), *_find_answers(trial, program)]
    causes += [*_find_server(trial)]
    return causes or [*_find_effects(trial)]


def _find_refused(trial: Trial, program: AgentProgram) -> Iterator[str]:
    """Yield requests that a run's gateway refuses for their API, their path or their model."""
    requests = trial.evidence.requests
    other = [seen for seen in requests if seen.route.kind == "ask" and seen.route.api not in program.dialects]
    if other:
        places = Counter((seen.route.api, seen.place) for seen in other)
        apis = ", ".join(dict.fromkeys(seen.route.api for seen in other))
        written = ", ".join(program.dialects)
        asked = describe_apis(places)
        yield f"the program asks {asked}; the adapter says dialects: [{written}]. Write dialects: [{apis}]"
    for place in dict.fromkeys(seen.place for seen in requests if seen.route.kind == "unknown"):
        near = _find_near_path(place)
        yield f"{place} is not served; {near}"
    models = Counter(
        seen.asked.model for seen in requests if seen.asked is not None and seen.asked.model not in ("", MODEL.model_id)
    )
    if models and program.pin == "refuse":
        shown = ", ".join(f"{name!r} ({count_text(count, 'time')})" for name, count in models.items())
        yield f"it asked for other models than the run's: {shown}; write pin: rewrite, or name the setting of its model"


def _find_near_path(place: str) -> str:
    path = place.partition(" ")[2]
    bare = {served.removeprefix("/v1").removeprefix("beta"): served for served in _SERVED}
    near = get_close_matches(path.removeprefix("/v1"), bare, 1, 0.3)
    if not near:
        return f"there are {', '.join(_SERVED)}"
    return f"the nearest is {bare[near[0]]}: check the end of the base URL ({{base}}/v1 or {{base}})"


def list_hosts(trial: Trial) -> str:
    """Return the other hosts of a trial with their counts."""
    if trial.hosts is None:
        return trial.unseen
    return ", ".join(f"{host} ({count_text(count, 'time')})" for host, count in Counter(trial.hosts).items()) or "none"


def _find_hosts(trial: Trial) -> Iterator[str]:
    # A program that got its answers may look for updates: that is no cause
    if trial.hosts and not trial.evidence.requests:
        yield f"it tried {list_hosts(trial)}. Give it the gateway: which variable or file sets its base URL?"


def _find_silence(trial: Trial) -> Iterator[str]:
    if trial.evidence.requests or not trial.evidence.turns:
        return
    turn = trial.evidence.turns[0]
    hosts = f"; other hosts: {list_hosts(trial)}"
    yield (
        f"the program asked nothing at {turn.base_url} ({turn.end} after {turn.seconds:.1f} s){hosts}; "
        f"OPENAI_BASE_URL, ANTHROPIC_BASE_URL, GOOGLE_GEMINI_BASE_URL and their keys were set: which variable or file "
        f"sets its base URL?{_show_last_lines(turn)}"
    )


def _show_last_lines(turn: SeenTurn) -> str:
    text = last_lines(turn.output.stderr or turn.output.stdout, _LAST_LINES)
    return f"; its last lines: {text.replace(chr(10), ' / ')}" if text else ""


def _find_helpers(trial: Trial, policy: GatewayPolicy) -> Iterator[str]:
    """Yield requests outside the conversation that no helper of the adapter answers."""
    requests = trial.evidence.to_model
    if not any(asked.tools for _, asked in requests):
        return
    texts: dict[str, None] = {}
    for _, asked in requests:
        system = "\n".join(message_text(part) for part in asked.messages if part.get("role") in ("system", "developer"))
        users = [message_text(part) for part in asked.messages if part.get("role") == "user"]
        of_turn = any(turn in text for turn in TURNS for text in users)
        if (not asked.tools or not of_turn) and not any(
            helper.system_matches.search(system) for helper in policy.helpers
        ):
            texts[system] = None
    for system in texts:
        begin = system.strip()[:60].splitlines()[0] if system.strip() else ""
        if not begin:
            yield "it sends requests without tools and without a system text beside the conversation: switch them off"
            continue
        pattern = json.dumps(f"^{re.escape(begin)}".replace("\\ ", " "))
        yield (
            "it sends requests outside the conversation, which use up the script's steps; switch them off or add to "
            f"helpers: - {{system_matches: {pattern}, reply: A task}}"
        )


def _find_tools(trial: Trial, program: AgentProgram) -> Iterator[str]:
    requests = trial.evidence.to_model
    if not requests:
        return
    if program.tools and not any(asked.tools for _, asked in requests):
        yield (
            "no tools offered: portable steps are skipped; answers only. Switch the program's tools on, or remove "
            "`tools` from the adapter if it has a protocol of its own in texts"
        )


def _find_missing_finish(trial: Trial, program: AgentProgram) -> Iterator[str]:
    if program.finish is None and "add a step to" in str(trial.problem):
        yield (
            "it asked again after the model's last text: if it ends by a tool call, write finish: {name: ..., "
            f"arguments: {{...: '{{content}}'}}}} with one of {describe_offer(collect_offer(trial))}"
        )


def collect_offer(trial: Trial) -> dict[str, OfferedTool]:
    """Return the tools that any request of a trial offers."""
    asked = [seen.asked for seen in trial.evidence.requests if seen.asked is not None]
    return {name: tool for each in asked for name, tool in read_offer(each.tools).items()}


def list_methods(trial: Trial) -> str:
    """Return the methods of the requests to the trial's MCP server, with their counts."""
    methods = Counter(trial.evidence.mcp)
    return ", ".join(f"{method} ({count_text(count, 'time')})" for method, count in methods.items()) or "nothing"


def _find_server(trial: Trial) -> Iterator[str]:
    """Yield why the program's requests do not offer the tool of the trial's MCP server under its name."""
    offers = [list(read_offer(seen.asked.tools)) for seen in trial.evidence.requests if seen.asked and seen.asked.tools]
    if trial.mcp is None or not offers:
        return
    if not trial.evidence.mcp:
        place = "session/new names it"
        if isinstance(trial.mcp, McpPlace):
            place = f"it is in {trial.mcp.file} at {trial.mcp.at}"
        last = _show_last_lines(trial.evidence.turns[0]) if trial.evidence.turns else ""
        yield (
            f"it did not connect the MCP server {SERVER}: {place}; does it read that, and does it trust the workspace? "
            f"Some programs need an option for it{last}"
        )
        return
    if trial.problem is not None:
        return  # it had no time to offer the tool
    names = [name for offer in offers for name in offer if SERVER in name or TOOL in name]
    if not names and "tools/list" in trial.evidence.mcp:
        yield (
            f"it listed the tools of the MCP server {SERVER}, and no request offers one; the requests offer: "
            f"{describe_offer(collect_offer(trial))}. If it hides tools behind a search, switch that off (tool search, "
            "deferred or lazy tools in its settings)"
        )
    elif not names:
        yield f"it asked the MCP server {SERVER} for {list_methods(trial)}, and never for tools/list"
    elif not (fitting := fnmatch.filter(names, trial.mcp_name)):
        template = re.sub("[0-9a-f]{6,}", "*", names[0].replace(SERVER, "{server}").replace(TOOL, "{tool}"))
        yield f"mcp.names is {trial.mcp.names!r}; the requests offer {names[0]}. Write names: {template!r}"
    elif fitting[0] not in offers[0]:
        yield (
            f"its first request lacks {fitting[0]}, and a later one offers it: it asks before its MCP servers have "
            "started. Which setting lets it wait?"
        )


def _find_answers(trial: Trial, program: AgentProgram) -> Iterator[str]:
    """Yield wrong readings of the answer, and a wrong `finish`."""
    for number, turn in enumerate(trial.evidence.turns):
        answer = trial.answers[number] if number < len(trial.answers) else None
        reply, stdout = turn.output.reply, turn.output.stdout
        if answer == ANSWERS[number] or (reply is not None and answer == reply.strip()):
            continue
        text = ANSWERS[number]
        if program.finish is not None:
            yield _explain_finish(trial, program, answer)
        elif reply is None or reply.strip() != text:
            continue
        elif paths := list(dict.fromkeys(_find_paths(stdout, text))):
            yield (
                f"the answer is {answer!r}, and the model's last text is {text!r}; stdout has it at: {', '.join(paths)}"
            )
        elif text in stdout:
            further = len(stdout.strip()) - len(text)
            yield f"stdout holds the answer and {further:,} other characters; write answer: {{from: reply}}"
        else:
            yield (
                f"the answer is {answer!r}, and the model's last text is {text!r}, which stdout does not contain; "
                "write answer: {from: reply}"
            )
        return


def _explain_finish(trial: Trial, program: AgentProgram, answer: str | None) -> str:
    finish = program.finish
    assert finish is not None
    shell = program.tools.get("shell")
    quoting = "a shell: quoted" if shell is not None and shell.name == finish.name else "no shell: not quoted"
    sent = next((event for event, _ in reversed(trial.calls) if event.name == finish.name), None)
    offer = collect_offer(trial)
    schema = offer[finish.name].describe() if finish.name in offer else "no tool of that name"
    shown = "nothing" if sent is None else f"{sent.name}{json.dumps(sent.arguments, ensure_ascii=False)}"
    return f"finish: the answer is {answer!r}; sent was {shown} ({quoting}); the request offers {schema}"


def _find_paths(stdout: str, text: str) -> Iterator[str]:
    """Yield the readings by which stdout's JSON has a text."""
    try:
        whole = json.loads(stdout)
    except ValueError:
        whole = None
    if isinstance(whole, dict | list):
        parts = whole if isinstance(whole, list) else [whole]
        for part in parts:
            yield from (f"{{from: stdout_json, {path}}}" for path in _walk(part, text))
        return
    for line in stdout.splitlines():
        try:
            value = json.loads(line)
        except ValueError:
            continue
        if isinstance(value, dict):
            kind = f"where: {{type: {value['type']}}}, " if isinstance(value.get("type"), str) else ""
            yield from (f"{{from: stdout_jsonl, {kind}{path}}}" for path in _walk(value, text))


def _walk(value: Any, text: str, path: str = "") -> Iterator[str]:
    if isinstance(value, str) and value.strip() == text:
        yield f"path: {path.removeprefix('.')}"
    elif isinstance(value, Mapping):
        for name, item in value.items():
            yield from _walk(item, text, f"{path}.{name}")
    elif isinstance(value, list):
        for number, item in enumerate(value):
            yield from _walk(item, text, f"{path}.{number}")


def _find_effects(trial: Trial) -> Iterator[str]:
    """Yield what differs from a trial that passed."""
    if trial.end is not None and trial.end.error is not None:
        yield f"the run ended as {trial.end.status}: {trial.end.error.message}"
        return
    for number, answer in enumerate(trial.answers):
        if answer != ANSWERS[number]:
            yield f"the answer of turn {number + 1} is {shorten_text(str(answer), 80)!r}, expected {ANSWERS[number]!r}"
    offers_tools = any(asked.tools for _, asked in trial.evidence.to_model)
    if offers_tools and FILE not in trial.changed:
        changed = ", ".join(trial.changed) or "none"
        yield f"the program did not write {FILE} into its workspace; files changed: {changed}"
    if offers_tools and trial.mcp is not None:
        call = next((call for call, _ in trial.calls if call.name == f"{SERVER}:{TOOL}"), None)
        if call is None or not call.executed:
            reason = "" if call is None or call.reason is None else f": {call.reason}"
            yield f"it did not make the call of {SERVER}:{TOOL}{reason}"
    number = len([event for event in trial.events if event.type == "runner" and event.name == "reply"])
    sums = {name: count * number for name, count in _PER_REQUEST.items()}
    if offers_tools and (usage := {name: getattr(trial.usage, name) for name in sums}) != sums:
        yield f"usage: found {usage}, expected {sums} of {number} requests"
    if (mismatch := trial.find_event("usage_mismatch")) is not None:
        yield f"its own count of tokens differs: found {dict(mismatch)}; check `reported`"
