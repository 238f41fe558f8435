from __future__ import annotations

import asyncio
import itertools
import re
from dataclasses import replace

import pytest

from pytest_agentbench.engine.cassettes import kept
from pytest_agentbench.errors import ConfigError, ProviderError
from pytest_agentbench.models.cassette_file import (
    SHOWN_LINES,
    SHOWN_WIDTH,
    Answer,
    Cassette,
    Exchange,
    Refusal,
    dump_cassette,
    find_nearest,
    read_cassette,
)
from pytest_agentbench.models.cassettes import TapedClient
from pytest_agentbench.models.messages import ChatReply
from pytest_agentbench.models.tape import Form, Slot, Tape, make_slots, map_texts, number_exchanges
from pytest_agentbench.records.case import Model
from pytest_agentbench.records.run import Usage
from pytest_agentbench.secrets.redaction import Redactor

FORM = Form(
    write=lambda text: Answer(content=text, usage=Usage(cost_usd=1.0)),
    read=lambda answer, seconds: answer.content,
    refusal=lambda error: Refusal(code="no", message=str(error)) if isinstance(error, ValueError) else None,
    refused=lambda refusal: ValueError(refusal.message),
)


def tape(tmp_path, mode, session="s", **modes):
    label = Cassette("case", "m", 1, session)
    return Tape(tmp_path / "c.yaml", label, lambda asked: modes.get(asked, mode), Redactor({}))


def recording(tmp_path, play, mode="record", **fields):
    made = tape(tmp_path, mode, **fields)
    value = asyncio.run(play(made))
    made.save()
    return value


def replaying(tmp_path, play):
    return asyncio.run(play(tape(tmp_path, "replay")))


def answering(*answers):
    """A model that gives these answers, one after the other, each some turns of the loop late."""
    left = iter(answers)

    async def ask():
        answer = next(left)
        for _ in range(3):
            await asyncio.sleep(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    return ask


async def never():
    raise AssertionError("a replay asks nobody")


def question(text):
    return {"model": "m", "messages": [{"role": "user", "content": text}]}


def test_equal_requests_stay_draws_of_their_own(tmp_path):
    def asking(ask):
        async def play(tape):
            return [await tape.play("m", question("?"), ask, FORM) for _ in range(3)]

        return play

    assert recording(tmp_path, asking(answering("a", "b", "a"))) == ["a", "b", "a"]
    assert replaying(tmp_path, asking(never)) == ["a", "b", "a"]


def test_parallel_tasks_that_ask_the_same_again_keep_their_own_draws(tmp_path):
    """Two judges err alike, and are asked again alike, in another order than they answered."""

    def asking(ask, order):
        async def judge(tape, number, turns):
            first = await tape.play("m", question("?"), ask, FORM)
            for _ in range(turns):
                await asyncio.sleep(0)
            return first, await tape.play("m", question("again"), ask, FORM)

        async def play(tape):
            return await asyncio.gather(*(judge(tape, number, turns) for number, turns in enumerate(order)))

        return play

    recorded = recording(tmp_path, asking(answering("x", "x", "late", "early"), [0, 9]))
    assert recorded == [("x", "late"), ("x", "early")]
    assert replaying(tmp_path, asking(never, [9, 0])) == recorded


@pytest.mark.parametrize("mode", ["replay", "auto"])
@pytest.mark.parametrize(
    ("field", "other", "expected"), [("case", "easy", "'case'"), ("model", "cheap", "'m'"), ("repetition", 2, "1")]
)
def test_a_cassette_of_another_case_model_or_repetition_is_refused(tmp_path, mode, field, other, expected):
    async def play(tape):
        return await tape.play("m", question("?"), answering("4"), FORM)

    recording(tmp_path, play)
    path = tmp_path / "c.yaml"
    path.write_bytes(dump_cassette(replace(read_cassette(path), **{field: other})))
    with pytest.raises(ConfigError) as raised:
        asyncio.run(play(tape(tmp_path, mode)))
    said = str(raised.value)
    assert re.match(
        rf"{path}:\d+:\d+: {field}: found {other!r}, expected {expected}: the cassette was recorded for", said
    )
    assert f"for another {field}; correct this line if the {field} was renamed" in said
    assert "or delete it and record again with --agentbench-cassettes record" in said
    # A new recording takes its place, and none of its exchanges
    assert recording(tmp_path, play) == "4"
    assert len(read_cassette(path).exchanges) == 1
    assert getattr(read_cassette(path), field) != other


def test_equal_exchanges_are_distinguished_by_their_places():
    first, second = (Slot(Exchange(asked="m", request=question("?"), reply=Answer(content="x"))) for _ in range(2))
    later = [Slot(Exchange(asked="m", request=question("again"), cut_off="run"), slot) for slot in (second, first)]
    assert [exchange.after for exchange in number_exchanges([first, second, *later])] == [None, None, 2, 1]
    assert [slot.previous for slot in make_slots(list(number_exchanges([first, second, *later])))[:2]] == [None, None]


def test_an_exception_that_says_something_of_the_request_is_kept(tmp_path):
    def asking(ask):
        async def play(tape):
            with pytest.raises(ValueError, match="too long"):
                await tape.play("m", question("?"), ask, FORM)
            return await tape.play("m", question("short?"), ask, FORM)

        return play

    recording(tmp_path, asking(answering(ValueError("too long"), "yes")))
    assert replaying(tmp_path, asking(never)) == "yes"


def test_an_outage_is_not_kept(tmp_path):
    async def play(tape):
        with pytest.raises(OSError, match="down"):
            await tape.play("m", question("?"), answering(OSError("down")), FORM)

    recording(tmp_path, play)
    assert not (tmp_path / "c.yaml").exists()


def test_a_request_that_its_asker_gave_up_is_waited_for_again(tmp_path):
    """The first of two equal requests to be answered counts; the other is cancelled."""

    def asking(asks):
        async def play(tape):
            tasks = [asyncio.ensure_future(tape.play("m", question("?"), ask, FORM)) for ask in asks]
            done, pending = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in pending:
                task.cancel()
            await asyncio.wait(tasks)
            [winner] = done
            return tasks.index(winner), winner.result()

        return play

    async def hang():
        await asyncio.Event().wait()

    recorded = recording(tmp_path, asking([hang, answering("quick")]))
    assert replaying(tmp_path, asking([never, never])) == recorded == (1, "quick")


def test_an_interrupted_request_is_not_recorded(tmp_path):
    made = tape(tmp_path, "record")

    async def interrupted():
        hung = asyncio.Event()

        async def hang():
            hung.set()
            await asyncio.Event().wait()

        async def judge():
            with kept(made):
                await made.play("m", question("one"), answering("first"), FORM)
                await made.play("m", question("two"), hang, FORM)

        task = asyncio.create_task(judge())
        await hung.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(interrupted())
    [exchange] = read_cassette(tmp_path / "c.yaml").exchanges
    assert exchange.reply.content == "first"


def test_a_message_of_parts_is_its_text(tmp_path):
    """A plugin's provider may answer so."""
    message = {"role": "assistant", "content": [{"type": "text", "text": "Pa"}, {"type": "text", "text": "ris"}]}

    class Provided:
        async def complete(self, messages, **options):
            return ChatReply("Paris", (), "stop", Usage(), "m", None, message, attempts=1, seconds=0.1)

    def ask(made):
        client = TapedClient(Model(model_id="m", requested_model="m"), made, Provided)
        return client.complete([{"role": "user", "content": "?"}])

    assert recording(tmp_path, ask).content == "Paris"
    assert replaying(tmp_path, ask).content == "Paris"


def test_requests_are_compared_as_the_agent_says_and_sent_as_they_are(tmp_path):
    sent = []

    class Provided:
        async def complete(self, messages, **options):
            sent.append(messages[0]["content"])
            message = {"role": "assistant", "content": "Noon."}
            thoughts = {"reasoning_content": "Let me see."}
            return ChatReply("Noon.", (), "stop", Usage(), "m", None, message, 1, 0.1, reasoning=thoughts)

    def at(time):
        def ask(made):
            client = TapedClient(Model(model_id="m", requested_model="m"), made, Provided)
            alike = client.comparing(lambda request: map_texts(request, lambda text: text.replace(time, "[time]")))
            return alike.complete([{"role": "user", "content": f"It is {time}."}])

        return ask

    recording(tmp_path, at("09:15"))
    [exchange] = read_cassette(tmp_path / "c.yaml").exchanges
    assert exchange.request["messages"][0]["content"] == "It is [time]."
    assert sent == ["It is 09:15."]
    replayed = replaying(tmp_path, at("10:30"))
    assert (replayed.content, replayed.reasoning) == ("Noon.", {"reasoning_content": "Let me see."})


def test_a_request_that_an_older_version_recorded_in_another_form_is_found(tmp_path):
    class Provided:
        async def complete(self, messages, **options):
            return ChatReply("Noon.", (), "stop", Usage(), "m", None, {"role": "assistant", "content": "Noon."}, 1, 0.1)

    def ask(made, *forms):
        client = TapedClient(Model(model_id="m", requested_model="m"), made, Provided)
        return client.comparing(*forms).complete([{"role": "user", "content": "It is 09:15."}])

    def masked(request):
        return map_texts(request, lambda text: text.replace("09:15", "[time]"))

    recording(tmp_path, lambda made: ask(made, dict))
    assert replaying(tmp_path, lambda made: ask(made, masked, dict)).content == "Noon."


def test_a_record_of_this_session_is_added_to_and_another_is_replaced(tmp_path):
    def one(text, answer):
        async def play(tape):
            return await tape.play("m", question(text), answering(answer), FORM)

        return play

    recording(tmp_path, one("a", "1"), session="first")
    recording(tmp_path, one("b", "2"), session="first")
    assert recording(tmp_path, one("a", "another"), session="first") == "1"  # not paid twice
    assert [each.reply.content for each in read_cassette(tmp_path / "c.yaml").exchanges] == ["1", "2"]
    recording(tmp_path, one("b", "3"), session="second")
    assert [each.reply.content for each in read_cassette(tmp_path / "c.yaml").exchanges] == ["3"]


def test_recording_one_model_anew_keeps_what_others_said(tmp_path):
    async def play(tape):
        for asked in ("m", "judge"):
            await tape.play(asked, question(asked), answering(f"{asked} {next(numbers)}"), FORM)

    numbers = itertools.count(1)
    recording(tmp_path, play)
    recording(tmp_path, play, "auto", session="later", m="record")
    found = [(each.asked, each.reply.content) for each in read_cassette(tmp_path / "c.yaml").exchanges]
    assert found == [("judge", "judge 2"), ("m", "m 3")]


def test_saving_twice_writes_once(tmp_path):
    async def play(tape):
        for text in ("a", "b"):
            await tape.play("m", question(text), answering("same"), FORM)
            tape.save()

    recording(tmp_path, play)
    assert len(read_cassette(tmp_path / "c.yaml").exchanges) == 2


def test_paid_replies_are_distinguished_from_replayed_ones(tmp_path):
    async def first(tape):
        await tape.play("m", question("a"), answering("1"), FORM)
        assert tape.take_paid([Usage(cost_usd=7.0)]) == [Usage(cost_usd=7.0)]

    async def both(tape):
        for text in ("a", "b"):
            await tape.play("m", question(text), answering("2"), FORM)
        assert tape.take_paid([Usage(cost_usd=2.0)]) == [Usage(cost_usd=1.0)]
        assert tape.take_paid([Usage(cost_usd=9.0)]) == [Usage(cost_usd=9.0)]
        assert (tape.take_state(), tape.take_state()) == ("recorded", None)

    async def replayed(tape):
        await tape.play("m", question("a"), never, FORM)
        assert tape.take_paid([Usage(cost_usd=1.0)]) == []
        assert tape.take_state() == "replayed"

    recording(tmp_path, first)
    recording(tmp_path, both, "auto")
    replaying(tmp_path, replayed)


def test_a_miss_is_remembered(tmp_path):
    async def play(tape):
        tape.require_complete()
        with pytest.raises(ProviderError) as raised:
            await tape.play("m", question("?"), never, FORM)
        assert raised.value.code == "not_recorded"
        with pytest.raises(ProviderError, match="there is no cassette"):
            tape.require_complete()

    replaying(tmp_path, play)


# -- the difference to the nearest


def test_the_nearest_request_is_shown_where_it_differs():
    recorded = [(1, question("something else")), (2, question("one\ntwo\nthree")), (5, question("four"))]
    number, diff = find_nearest(question("one\n2\nthree"), recorded)
    assert number == 2
    assert diff.splitlines()[:2] == ["--- recorded (exchange 2)", "+++ asked now"]
    assert "-     two" in diff
    assert "+     2" in diff
    assert "four" not in diff
    assert find_nearest(question("x"), []) is None


def test_a_long_line_is_shown_from_where_it_differs():
    long = "word " * 2000
    _, diff = find_nearest(question(f"{long}blue{long}"), [(1, question(f"{long}green{long}"))])
    assert "green" in diff
    assert "blue" in diff
    assert max(map(len, diff.splitlines())) <= SHOWN_WIDTH + 4


def test_a_difference_is_bounded_however_large_the_requests():
    mine, theirs = ("\n".join(f"{who} line {n}" for n in range(20_000)) for who in ("my", "their"))
    _, diff = find_nearest(question(mine), [(n, question(theirs)) for n in range(3)])
    assert len(diff.splitlines()) <= SHOWN_LINES + 3
    same = "\n" * 20_000
    _, diff = find_nearest(question(f"{same}my end"), [(1, question(f"{same}their end"))])
    assert "their end" in diff
