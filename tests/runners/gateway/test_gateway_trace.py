"""Tool calls and results as the requests of an agent show them, and the case's words for scripted models."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from runners.gateway.gateway_support import Call, reply, result, results, shown, user
from support.cpu_seconds import at_most

from pytest_agentbench.models.messages import ChatReply, ToolCall
from pytest_agentbench.records.run import MessageEvent, ToolCallEvent, Usage
from pytest_agentbench.runners.base import Recorder
from pytest_agentbench.runners.gateway import trace as trace_module
from pytest_agentbench.runners.gateway.trace import ToolTrace, restore_case_words


def test_calls_and_their_results_are_noted_once_however_often_the_history_is_sent():
    tools, history = ToolTrace(trace := Recorder()), [user("Go.")]
    read, write = ("a1", "read", {"path": "x"}), ("a2", "write", {"path": "y", "content": "z"})
    tools.requested(history)
    tools.replied(history, reply(read, write, content="I look first."))
    history += [shown(read, write), result("a1", "text of x"), result("a2", [{"type": "text", "text": "written"}])]
    tools.requested(history)
    tools.requested(history)
    assert [type(event).__name__ for event in trace.events] == [
        "MessageEvent",
        "ToolCallEvent",
        "ToolCallEvent",
        "ToolResultEvent",
        "ToolResultEvent",
    ]
    assert [e.content for e in trace.events if isinstance(e, MessageEvent)] == ["I look first."]
    calls = [(e.call_id, e.name, e.arguments) for e in trace.events if isinstance(e, ToolCallEvent)]
    assert calls == [read, write]
    assert results(trace) == [("a1", "read", "text of x"), ("a2", "write", "written")]


def test_a_reply_without_calls_is_left_to_the_runner():
    tools = ToolTrace(trace := Recorder())
    tools.replied([user("Go.")], reply(content="Done."))
    assert trace.events == ()


def test_repeated_ids_are_distinguished():
    tools, history = ToolTrace(trace := Recorder()), [user("Go.")]
    for number in range(3):
        call = ("call_0", "ls", {})
        tools.replied(history, reply(call))
        history += [shown(call), result("call_0", f"listing {number}")]
        tools.requested(history)
    listed = [(call_id, content) for call_id, _, content in results(trace)]
    assert listed == [("call_0", "listing 0"), ("call_0-2", "listing 1"), ("call_0-3", "listing 2")]


def test_results_of_rewritten_ids_go_by_their_order():
    tools, history = ToolTrace(trace := Recorder()), [user("Go.")]
    tools.replied(
        history, reply(("functions.read:0", "read", {"path": "a"}), ("functions.read:1", "read", {"path": "b"}))
    )
    history += [
        shown(("functionsread0", "read", {"path": "a"}), ("functionsread1", "read", {"path": "b"})),
        result("other1", "text of a"),
        result("other2", "text of b"),
    ]
    tools.requested(history)
    assert [content for _, _, content in results(trace)] == ["text of a", "text of b"]


def test_results_that_are_shown_together_go_to_their_own_replies():
    tools, history, call = ToolTrace(trace := Recorder()), [user("Go.")], ("call_0", "ls", {})
    for number in range(2):
        tools.replied(history, reply(call))
        history += [shown(call), result("call_0", f"listing {number}")]
    tools.requested(history)
    assert [(call_id, content) for call_id, _, content in results(trace)] == [
        ("call_0", "listing 0"),
        ("call_0-2", "listing 1"),
    ]


def test_conversations_that_begin_alike_are_distinguished_by_arguments():
    tools, opening = ToolTrace(trace := Recorder()), [user("Read your file.")]
    for path in ("a", "b"):
        tools.replied(opening, reply((f"id-{path}", "read", {"path": path})))
    for path in ("a", "b"):
        tools.requested(
            [*opening, shown(("rewritten", "read", {"path": path})), result("rewritten", f"text of {path}")]
        )
    assert [(call_id, content) for call_id, _, content in results(trace)] == [
        ("id-a", "text of a"),
        ("id-b", "text of b"),
    ]


def test_a_call_without_a_result_waits_for_it():
    tools, history = ToolTrace(trace := Recorder()), [user("Go.")]
    first, second = ("a", "read", {"path": "a"}), ("b", "read", {"path": "b"})
    tools.replied(history, reply(first, second))
    tools.requested([*history, shown(first, second), result("b", "text of b")])
    tools.requested([*history, shown(first, second), result("a", "text of a"), result("b", "text of b")])
    assert results(trace) == [("b", "read", "text of b"), ("a", "read", "text of a")]


def test_a_result_whose_call_the_model_never_made_is_not_in_the_trace():
    tools, history = ToolTrace(trace := Recorder()), [user("Go.")]
    tools.replied(history, reply(("a", "read", {"path": "a"})))
    forged = ("z", "solve", {"everything": True})
    tools.requested([*history, shown(forged), result("z", "solved"), result("loose", "x")])
    assert results(trace) == []


def test_arguments_that_are_no_json_object_are_kept_as_text():
    tools = ToolTrace(trace := Recorder())
    broken = ChatReply(None, (ToolCall("a", "write", None, '{"path": '),), "tool_calls", Usage(), "m", None, {}, 1, 0.1)
    tools.replied([user("Go.")], broken)
    tools.requested([user("Go."), shown(("a", "write", {})), result("a", "no path")])
    assert [(e.arguments, e.raw) for e in trace.events if isinstance(e, ToolCallEvent)] == [(None, '{"path": ')]
    assert results(trace) == [("a", "write", "no path")]


def test_a_forged_history_takes_no_time_and_hides_no_result():
    """Thousands of calls that were never made, as an agent may show them in each of its requests."""
    tools, history = ToolTrace(trace := Recorder()), [user("Go.")]
    for number in range(2000):
        tools.replied(history, reply((f"id{number}", "read", {"path": str(number)})))
    forged = [each for n in range(5000) for each in (shown((f"z{n}", "read", {"path": f"z{n}"})), result(f"z{n}", "x"))]
    last = ("id1999", "read", {"path": "1999"})
    with at_most(1):
        tools.requested([*history, *forged, shown(last), result("id1999", "text")])
    assert ("id1999", "read", "text") in results(trace)


def test_results_are_kept_up_to_a_bound(monkeypatch):
    monkeypatch.setattr(trace_module, "_MOST_RESULTS", 8)
    tools, history = ToolTrace(trace := Recorder()), [user("Go.")]
    for name, content in (("a", "12345"), ("b", "6789"), ("c", "x")):
        call = (name, "read", {"path": name})
        tools.replied(history, reply(call))
        history += [shown(call), result(name, content)]
        tools.requested(history)
    assert [content for _, _, content in results(trace)] == ["12345", "678[1 more characters]", "[1 more characters]"]


@settings(max_examples=30)
@given(data=st.data())
def test_every_result_reaches_its_call_in_parallel_rewritten_and_shortened_histories(data):
    """Each result names its call, so that a wrong match shows."""
    ids = data.draw(st.sampled_from(["unique", "repeated", "rewritten"]))
    opened = data.draw(st.integers(1, 3)) if ids != "unique" else data.draw(st.integers(1, 4))
    may_shorten = ids == "unique" or opened == 1
    tools = ToolTrace(trace := Recorder())
    histories = [[user(f"Task {number}")] for number in range(opened)]
    waiting: list[list[tuple[str, Call]] | None] = [None] * opened
    made: list[str] = []

    def show_results(which: int) -> None:
        calls = waiting[which] or []
        own = [(f"r{call[0]}" if ids == "rewritten" else call[0], call[1], call[2]) for _, call in calls]
        history = histories[which]
        history.append(shown(*own))
        history += [result(call[0], key) for (key, _), call in zip(calls, own, strict=True)]
        waiting[which] = None
        if may_shorten and len(history) > 4 and data.draw(st.booleans()):
            last = max(place for place, message in enumerate(history) if message["role"] == "assistant")
            history[:last] = [user("Summary of what was done.")]

    for _ in range(data.draw(st.integers(1, 8))):
        which = data.draw(st.integers(0, opened - 1))
        if waiting[which] is not None:
            show_results(which)
        tools.requested(histories[which])
        calls: list[tuple[str, Call]] = []
        for place in range(data.draw(st.integers(1, 3))):
            key = f"result {len(made)}"
            made.append(key)
            name = data.draw(st.sampled_from(["ls", "read"]))
            call_id = f"id{len(made)}" if ids == "unique" else f"call_{place}"
            calls.append((key, (call_id, name, {"path": data.draw(st.sampled_from(["a", "b"]))})))
        tools.replied(histories[which], reply(*(call for _, call in calls)))
        waiting[which] = calls
    for which in range(opened):
        if waiting[which] is not None:
            show_results(which)
            tools.requested(histories[which])

    noted = [event for event in trace.events if isinstance(event, ToolCallEvent)]
    assert len({event.call_id for event in noted}) == len(noted) == len(made)
    content = {call_id: content for call_id, _, content in results(trace)}
    assert len(results(trace)) == len(made)
    assert [content[event.call_id] for event in noted] == made


def test_a_sub_agents_conversation_stays_as_it_is():
    messages = [{"role": "system", "content": "You are a sub-agent."}, user("Find the price.")]
    assert restore_case_words(messages, ["Write a report.", ""]) == messages


def test_the_cases_words_stand_for_the_messages_that_hold_them():
    internal = user("<<<INTERNAL>>>\nRevise it.")
    call = shown(("a", "write", {}))
    messages = [
        {"role": "system", "content": "You are."},
        user("[Sun 2026-11-22 09:15 UTC] Write it.\n\nRuntime: agent=a | host=vm"),
        call,
        result("a", "ok"),
        internal,
        {"role": "assistant", "content": "Written."},
        {"role": "user", "content": [{"type": "text", "text": "[Sun 2026-11-22 09:17 UTC] Revise it. Write it."}]},
        internal,
    ]
    assert restore_case_words(messages, ["Write it.", "Revise it. Write it."], ("<<<INTERNAL",)) == [
        messages[0],
        user("Write it."),
        call,
        messages[3],
        messages[5],
        user("Revise it. Write it."),
    ]
