"""Hold a conversation with a program in the run's sandbox: one start of the program for each turn."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pytest_agentbench.bounded.folders import slug
from pytest_agentbench.config.agent_file import fill, fill_text
from pytest_agentbench.config.sections import RunnerSettings
from pytest_agentbench.errors import ConfigError, SandboxError, UnavailableError
from pytest_agentbench.records.case import Case, Message, Model
from pytest_agentbench.runners.agents.adapter import READER, Program
from pytest_agentbench.runners.agents.fields import ProgramFields
from pytest_agentbench.runners.agents.mcp import (
    RELAY,
    McpServerEntry,
    add_servers,
    list_entries,
    serve_tools,
    write_relay,
)
from pytest_agentbench.runners.agents.places import (
    HOME,
    PORT,
    START,
    control_folder,
    find_control,
    find_workspace,
    list_places,
    name_message,
    open_socket,
    open_way,
    start_sandbox,
    write_inputs,
    write_message,
)
from pytest_agentbench.runners.agents.reading import Answer, ProgramOutput, make_answer, read_answer, read_usage
from pytest_agentbench.runners.agents.timing import TurnTime
from pytest_agentbench.runners.base import RunContext, RunEnd, clean, compare_usage, make_end, quote_last_lines
from pytest_agentbench.runners.chat import render_first, with_attachments
from pytest_agentbench.runners.conversation import AgentConversation, TurnOutput, name_turn
from pytest_agentbench.terminal_text import last_lines
from pytest_agentbench.workspaces.confined import PathRefusedError
from pytest_agentbench.workspaces.sandboxes.base import ExecResult, Sandbox, provider_of
from pytest_agentbench.workspaces.workspace import WORKSPACE

if TYPE_CHECKING:
    from pytest_agentbench.runners.agents.evidence import Evidence
    from pytest_agentbench.runners.gateway.address import GatewayAddress
    from pytest_agentbench.runners.gateway.gateway import Gateway, UsageSource
    from pytest_agentbench.runners.gateway.mcp_names import ServedTools
    from pytest_agentbench.runners.skills import SkillWatch

_MOST_OUTPUT, _MOST_FILE = 40 * 2**20, 16 * 2**20
_MOST_ARGUMENT = 120 * 1024
"""Linux takes 128 KB for one argument."""

_SHOWN = 2000
_CHMOD_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class PreparedProgram:
    """A prepared run: its program, and the case's fields.

    `path` are folders of programs on this machine that a sandbox other than a container shows. `evidence` records what
    the program does, for `agentbench agents doctor`. `permission` is the value of `{permission}`.
    """

    program: Program
    fields: ProgramFields
    path: tuple[str, ...] = ()
    evidence: Evidence | None = None
    permission: Literal["allow", "ask"] = "allow"


def list_turn_texts(case: Case, program: str) -> list[str]:
    """Return the text of each turn, at least one.

    A case without `turns` is one turn of all its messages. If it has turns, its messages and attachments belong to the
    first one. Raises ConfigError as `render_messages` does, and for empty turns.
    """
    texts = [_join_messages(render_first(case)), *(turn.content for turn in case.turns[1:])]
    for number, text in enumerate(texts, start=1):
        if not text.strip():
            problem = f"turn {number} is empty, and {program} accepts no empty message; write one"
            raise ConfigError(f"{case.path}:{case.line}:1: input: {problem}")
    return texts


def word_turn(case: Case, texts: Sequence[str], message: Message, turn: int) -> str:
    """Return the message of a turn as a program gets it: one of the `texts` that are known, else as `list_turn_texts`
    words it.
    """
    if turn <= len(texts):
        return texts[turn - 1]
    if turn > 1:
        return message.content
    return _join_messages(with_attachments(case, (*case.messages, message)))


def _join_messages(messages: Sequence[Mapping[str, Any]]) -> str:
    """Return the text of a single user message; of several messages with their roles above them."""
    if len(messages) == 1 and messages[0]["role"] == "user":
        return str(messages[0]["content"])
    return "\n\n".join(f"[{_name_speaker(message)}]\n{message['content'] or ''}" for message in messages)


def _name_speaker(message: Mapping[str, Any]) -> str:
    if "name" in message:
        return f"{message['role']} {message['name']}"
    return str(message["role"])


async def open_program(
    case: Case, context: RunContext, texts: Sequence[str], form: type[ProgramConversation]
) -> ProgramConversation:
    """Return a conversation with the program, whose sandbox and gateway are open until its `close`.

    `texts` are the messages of the turns as the program gets them, if they are known: `list_turn_texts`. `form` is the
    conversation's class.

    The trace gets the tool calls of the program's model with their results. A runner event `turn` has the program's
    exit and its own token counts. Raises UnavailableError, ConfigError and SandboxError.
    """
    prepared = context.prepared
    if context.client is None or context.model is None or not isinstance(prepared, PreparedProgram):
        raise UnavailableError(f"the runner {case.runner.type} needs a model: name one with --model")
    spec = context.needs_sandbox()
    # With network, requests to other endpoints are invisible
    provider = provider_of(spec.kind)
    alone = provider.network(spec) == "none"
    # Nothing on another machine reaches the session's listener
    relayed = alone or not provider.shares_files
    watch = _watch_skills(case, context, prepared.program)
    served = serve_tools(case, context, prepared.program)
    gateway = _make_gateway(case, context, context.model, prepared, watch, served, alone=alone)
    context.trace.request.update(
        model=context.model.requested_model,
        agent=prepared.program.name,
        sandbox=spec.kind,
        turns=len(texts) or None,
        timeout_seconds=prepared.fields.timeout_seconds,
    )
    async with AsyncExitStack() as stack:
        folder = stack.enter_context(control_folder(context.sandboxes))
        write_inputs(folder, texts)
        if served is not None:
            write_relay(folder)
        address = await stack.enter_async_context(open_way(gateway, context, folder, relayed=relayed))
        sandbox = await stack.enter_async_context(start_sandbox(context, folder))
        socket = await stack.enter_async_context(open_socket(sandbox, folder))
        control = find_control(sandbox, folder)
        values: dict[str, str | int] = {
            "base": address.base_url,
            "key": address.key,
            "model": address.model,
            "session": f"{slug(case.case_id)}-{context.repetition}",
            "context_tokens": prepared.fields.context_tokens,
            "mcp_relay": f"{control}/{RELAY}",
            "root": prepared.program.root,
            "permission": prepared.permission,
            **list_places(spec, sandbox),
        }
        servers = [] if served is None else list_entries(served, address.base_url, address.key, control)
        relay = _Relay(PORT if relayed else 0, socket)
        conversation = form(
            case, context, texts, prepared, gateway, address, relay, sandbox, folder, values, watch, servers
        )
        await conversation.begin()
        conversation.closing = stack.pop_all()
    return conversation


def _watch_skills(case: Case, context: RunContext, program: Program) -> SkillWatch | None:
    """Return the watch over the case's skills, None without skills.

    Raises InfrastructureError for a changed skill, and for a workspace with a skill of the same name.
    """
    if not case.skills or program.skills is None:
        return None
    from pytest_agentbench.runners.skills import SkillWatch, refuse_workspace_skills

    refuse_workspace_skills(case, context.workspace.path)
    return SkillWatch(case, program.skills, context.trace)


def _make_gateway(
    case: Case,
    context: RunContext,
    model: Model,
    prepared: PreparedProgram,
    watch: SkillWatch | None,
    served: ServedTools | None,
    *,
    alone: bool,
) -> Gateway:
    # Collecting a case imports no web framework
    from pytest_agentbench.runners.agents.portable import PortableRequests, name_tools
    from pytest_agentbench.runners.gateway.gateway import Gateway

    program, fields = prepared.program, prepared.fields
    # The runner's own fields are not request fields
    request_fields = {name: value for name, value in context.settings.items() if name not in type(fields).model_fields}
    settings = RunnerSettings.model_validate({"timeout_seconds": fields.timeout_seconds, **request_fields})
    assert context.client is not None
    requests = PortableRequests(case.case_id, context.client, settings, context.trace, request_fields)
    requests.program, requests.workspace, requests.served = program, find_workspace(context), served
    if tools := name_tools(program):
        context.trace.request["portable"] = tools
    policy = replace(
        program.policy(),
        translates=settings.translates or not context.strict,
        observe=None if watch is None else watch.observe,
    )
    source: UsageSource = "gateway" if alone else "gateway_partial"
    parameters, over_budget = settings.request_parameters, context.over_budget
    if prepared.evidence is None:
        gateway = Gateway(requests, model, context.trace, parameters, over_budget, policy, source, served=served)
    else:
        from pytest_agentbench.runners.agents.evidence import WatchedGateway

        # A trial answers what a run would refuse, so that one trial shows all causes
        policy = replace(policy, dialects=(), pin="rewrite")
        gateway = watched = WatchedGateway(
            requests, model, context.trace, parameters, over_budget, policy, source, served=served
        )
        watched.evidence = prepared.evidence
    if served is not None:
        wraps_json = program.mcp is not None and program.mcp.json_text == "wrap"
        gateway.serve(served, context.toolbox(context.runnable), wraps_json=wraps_json)
    return gateway


@dataclass(frozen=True, slots=True)
class _Relay:
    """The port that the relay listens at, 0 for none, and the socket that it forwards to, as seen in the sandbox."""

    port: int
    socket: str


@dataclass(slots=True)
class ProgramConversation(AgentConversation):
    """The turns of one run. They share a session of the program and one time limit. `closing` frees everything."""

    case: Case
    context: RunContext
    texts: Sequence[str]
    prepared: PreparedProgram
    gateway: Gateway
    address: GatewayAddress
    relay: _Relay
    sandbox: Sandbox
    folder: Path
    values: dict[str, str | int]
    watch: SkillWatch | None
    servers: Sequence[McpServerEntry]
    closing: AsyncExitStack = field(default_factory=AsyncExitStack)
    _turn_time: TurnTime = field(init=False)
    _reported: dict[str, int] = field(default_factory=dict)
    _has_session: bool = True

    def __post_init__(self) -> None:
        self._turn_time = TurnTime(self.prepared.fields.timeout_seconds)

    def word(self, message: Message, turn: int) -> str:
        """Return the message; with the first one come the case's messages and attachments."""
        return word_turn(self.case, self.texts, message, turn)

    async def reply(self, message: Message, turn: int) -> TurnOutput:
        """Start the program with the message, and return its answer. Raises ProviderError after an outage."""
        program, trace, text = self.prepared.program, self.context.trace, self.word(message, turn)
        if not self._has_session:
            problem = f"{program.name} named no session that could be resumed"
            return TurnOutput(None, make_end("invalid", "no_session", problem))
        if turn > len(self.texts):
            write_message(self.folder, turn, text)
        # Only inside the turn: a process that the program leaves behind must not send paid requests
        with self.gateway.turn(text):
            done, mark = await self._start(turn, text)
        output = await self._look(done, mark)
        if self.prepared.evidence is not None:
            how = "killed" if done.exit_code is None else f"exit {done.exit_code}"
            self.prepared.evidence.add_turn(self.address.base_url, how, done.seconds, output)
        answer = await self.context.in_thread(partial(self._read, output, done))
        before, self._reported = self._reported, self._add_reported(self._reported, output)
        trace.event(
            "turn",
            number=turn,
            seconds=done.seconds,
            exit_code=done.exit_code,
            killed=done.killed,
            agent_reported={name: count - before.get(name, 0) for name, count in self._reported.items()} or None,
        )
        end = self._judge(done, output, answer, name_turn(turn, len(self.texts) or None))
        if self.watch is not None:
            self.watch.require_listed()
        if end is not None:
            return TurnOutput(None, end)
        if answer.session is not None:
            self.values["session"] = answer.session
        elif program.session is not None and _names_session(program):
            self._has_session = False
        return TurnOutput(answer.text or "")

    async def finish(self) -> None:
        """Compare the program's own token counts with the gateway's."""
        compare_usage(self.prepared.program.name, self._reported, self.context.trace)

    async def close(self) -> None:
        """Stop the sandbox and close the gateway."""
        await self.closing.aclose()

    async def begin(self) -> None:
        """Write the program's own files, with the run's MCP servers, and the case's skills. Raises SandboxError."""
        if self.servers:
            self.prepared = replace(self.prepared, program=add_servers(self.prepared.program, self.servers))
        await self.write_files()

    async def write_files(self) -> None:
        """Write the program's own files and the case's skills into the sandbox. Raises SandboxError."""
        program = self.prepared.program
        for path, content in program.files.items():
            await self._put(path, fill_text(content, self.values).encode("utf-8", "replace"))
        skills = self.context.case.skills
        if not skills or program.skills is None:
            return
        from pytest_agentbench.runners.skills import list_skill_files

        executables = []
        for file in list_skill_files(skills, program.skills):
            await self._put(file.path, file.content)
            if file.is_executable:
                executables.append(fill_text(file.path, self.values))
        if executables:
            done = await self.sandbox.exec(["chmod", "+x", "--", *executables], seconds=_CHMOD_SECONDS)
            if done.exit_code != 0:
                raise SandboxError(f"cannot make a skill's files executable: {last_lines(done.output)}")

    async def _put(self, path: str, content: bytes) -> None:
        # By the names that all sandboxes use: the path on this machine is the sandbox's matter
        target = fill_text(path, {"home": HOME, "workspace": WORKSPACE})
        try:
            await self.sandbox.put(target, content)
        except (OSError, PathRefusedError) as error:
            raise SandboxError(f"cannot write {target}: {error}") from error

    async def _start(self, number: int, text: str) -> tuple[ExecResult, str]:
        program = self.prepared.program
        values = {
            **self.values,
            "message": clean(text).replace("\0", ""),  # an argument of a program contains no NUL
            "message_file": f"{self.control}/{name_message(number)}",
        }
        template = program.argv if number == 1 or program.resume is None else program.resume
        argv = [str(fill(argument, values)) for argument in template]
        too_long = next((word for word in argv if len(word.encode("utf-8", "replace")) > _MOST_ARGUMENT), None)
        if too_long is not None:
            raise ConfigError(
                f"{self.context.case.path}:{self.context.case.line}:1: input: turn {number} makes an argument of "
                f"{len(too_long):,} characters, and Linux takes 128 KB; shorten it, or let a command read "
                "{message_file}"
            )
        # Random, so that the program cannot print it on stderr by chance or on purpose
        mark = f"agentbench-{secrets.token_hex(16)}"
        done = await self._turn_time.exec(
            self.sandbox,
            ["/bin/sh", "-c", START, self.control, str(self.relay.port), self.relay.socket, mark, *argv],
            output_limit=_MOST_OUTPUT,
            environment=self.environment(values),
        )
        return done, mark

    @property
    def control(self) -> str:
        """Return the path of the run's control folder in the sandbox."""
        return find_control(self.sandbox, self.folder)

    def environment(self, values: Mapping[str, str | int]) -> dict[str, str]:
        """Return the program's environment variables."""
        # In order of precedence, the highest last: the case's variables may replace the gateway's
        own = {name: fill_text(value, values) for name, value in self.prepared.program.env.items()}
        path = {"PATH": ":".join(self.prepared.path)} if self.prepared.path else {}
        return {**path, "HOME": str(values["home"]), "TZ": "UTC", "NO_COLOR": "1", **self.address.env(), **own}

    async def _look(self, done: ExecResult, mark: str) -> ProgramOutput:
        """Return the program's stdout and stderr, and the files that readings name."""
        # Without the mark the relay itself was killed, and all output is the program's stderr
        stderr, _, stdout = done.output.partition(f"\n{mark}\n")
        named: dict[str, str | None] = {}
        program = self.prepared.program
        for reading in (program.answer, program.error, program.session, program.reported):
            if reading is not None and reading.file is not None:
                named[reading.file] = await self._get(fill_text(reading.file, {"home": HOME, "workspace": WORKSPACE}))
        return ProgramOutput(stdout, stderr, named, self.gateway.last_text)

    async def _get(self, path: str) -> str | None:
        try:
            return (await self.sandbox.get(path, _MOST_FILE)).decode("utf-8", "replace")
        except (OSError, PathRefusedError):
            return None

    def _read(self, output: ProgramOutput, done: ExecResult) -> Answer:
        program = self.prepared.program
        read = program.reader()
        if read is None:
            return read_answer(program.answer, program.error, program.session, output)
        exit_code = -1 if done.exit_code is None else done.exit_code
        return make_answer(read(output.stdout, output.stderr, exit_code), READER)

    def _add_reported(self, earlier: dict[str, int], output: ProgramOutput) -> dict[str, int]:
        """Return the agent's token counts of all turns so far. Some agents report a turn's tokens, some their
        session's.
        """
        program = self.prepared.program
        if program.reported is None:
            return {}
        counts = read_usage(program.reported, program.answer.from_ or "stdout", output)
        if program.reported.of == "thread":
            return counts or earlier
        return {name: earlier.get(name, 0) + counts.get(name, 0) for name in {**earlier, **counts}}

    def _judge(self, done: ExecResult, output: ProgramOutput, answer: Answer, turn: str) -> RunEnd | None:
        """Return how the run ended with this turn, or None if it continues. Causes have precedence over their effects.

        Raises the gateway's outage regardless of the program's output, because some programs hide outages.
        """
        name, gateway = self.prepared.program.name, self.gateway
        if gateway.outage is not None:
            raise gateway.outage
        if done.killed == "time-out":
            if gateway.fault is not None:
                gateway.find_end(answered=False)
            limit = self.prepared.fields.timeout_seconds
            return make_end("timed_out", "run_timeout", f"no answer within timeout_seconds ({limit:g} s), in {turn}")
        if done.killed is not None:
            return make_end("failed", "sandbox_limit", f"{turn} went over the sandbox's limit of {done.killed}")
        answered = answer.error is None and done.exit_code == 0
        if (end := gateway.find_end(answered=answered)) is not None:
            return end
        if answer.error is not None:
            return make_end("failed", "agent_failed", f"{name} failed in {turn}: {clean(answer.error)[:_SHOWN]}")
        last = quote_last_lines(output.stderr or output.stdout)
        if done.exit_code != 0:
            return make_end("failed", "agent_exit", f"{name} ended {turn} with exit status {done.exit_code}{last}")
        if answer.text is None:
            cut = " (its output was too long and was truncated)" if done.truncated else ""
            return make_end("invalid", "no_answer", f"{name} ended {turn} without an answer{cut}{last}")
        return None


def _names_session(program: Program) -> bool:
    return any("{session}" in argument for argument in program.resume or ())
