from __future__ import annotations

import asyncio
import json

import pytest
from research_judges import Judge, cut
from support.stored import find_stored

from pytest_agentbench.models.replies import InvalidReply, ReplyPart, read_json
from pytest_agentbench.packs.research.asking import Asking, ReplyCut, Unscored
from pytest_agentbench.records.case import Prices

MESSAGES = [{"role": "system", "content": "Judge."}, {"role": "user", "content": "How good?"}]


class Said(ReplyPart):
    score: int


def question(asking: Asking, **changed):
    messages = changed.pop("messages", MESSAGES)
    parse = changed.pop("parse", lambda text: read_json(text, Said).score)
    return asking("race", "research.1", messages, None, parse, **{"version": "1", **changed})


def test_a_reply_is_kept_and_not_paid_for_again(tmp_path):
    with Judge({"score": 3}, {"score": 4}, kept=tmp_path) as judge:
        assert [judge.ask(question), judge.ask(question)] == [3, 3]
        assert len(judge.bodies) == 1
        assert judge.ledger.total.requests == 1


@pytest.mark.parametrize(
    "changed",
    [
        {"version": "2"},
        {"draw": 2},
        {"messages": [*MESSAGES[:1], {"role": "user", "content": "How good is it?"}]},
    ],
)
def test_another_prompt_draw_or_version_is_another_question(tmp_path, changed):
    with Judge({"score": 3}, {"score": 4}, kept=tmp_path) as judge:
        assert [judge.ask(question), judge.ask(lambda asking: question(asking, **changed))] == [3, 4]


def test_another_models_reply_is_not_taken(tmp_path):
    with Judge({"score": 3}, {"score": 4}, kept=tmp_path) as judge:
        first = judge.ask(question)
        judge.settings["requested_model"] = "other"
        assert [first, judge.ask(question)] == [3, 4]
        judge.settings["parameters"] = {"temperature": 1.0}
        assert judge.ask(question) == 4
    assert len(judge.bodies) == 3


def test_a_refused_reply_is_asked_for_again_and_only_the_last_is_kept(tmp_path):
    with Judge("no JSON", {"score": 4}, kept=tmp_path) as judge:
        assert [judge.ask(question), judge.ask(question)] == [4, 4]
        assert [len(body["messages"]) for body in judge.bodies] == [2, 4]
    assert "the reply is not JSON" in judge.bodies[1]["messages"][3]["content"]
    assert len(find_stored(tmp_path, "judgements/*/*.json")) == 1


@pytest.mark.slow
def test_a_verdict_that_stays_malformed_is_unscored_and_not_stored(tmp_path):
    with Judge({"score": "high"}, kept=tmp_path) as judge, pytest.raises(Unscored, match="no verdict in 3 replies"):
        judge.ask(question)
    assert len(judge.bodies) == 3
    assert not find_stored(tmp_path, "judgements/*/*.json")


@pytest.mark.slow
def test_a_reply_that_is_cut_off_is_not_asked_for_again(tmp_path):
    with Judge(cut('{"score": '), kept=tmp_path) as judge:
        with pytest.raises(ReplyCut) as caught:
            judge.ask(question)
        assert str(caught.value).startswith("the reply was cut off at the model's limit of tokens; raise")
        assert len(judge.bodies) == 1
        assert not find_stored(tmp_path, "judgements/*/*.json")
        judge.replies[:] = [{"score": 2}]
        assert judge.ask(question) == 2


@pytest.mark.slow
def test_that_a_divisible_question_was_too_long_is_kept(tmp_path):
    def divisible(asking):
        return question(asking, divisible=True)

    with Judge(cut('{"score": '), kept=tmp_path) as judge:
        for _ in range(2):
            with pytest.raises(ReplyCut):
                judge.ask(divisible)
        assert len(judge.bodies) == 1


def test_a_whole_reply_counts_though_it_ends_at_the_limit():
    with Judge(cut('{"score": 5}')) as judge:
        assert judge.ask(question) == 5


def test_nothing_is_asked_once_the_budget_is_used_up():
    with Judge({"score": 1}, prices=Prices(input_per_1m=1e6, output_per_1m=0.0)) as judge:  # 10 USD a request
        judge.ledger.max_cost = 5.0
        assert judge.ask(question) == 1
        with pytest.raises(Unscored, match=r"the budget is used up: 10\.0000 of 5\.0000 USD"):
            judge.ask(question)
        assert len(judge.bodies) == 1


def test_kept_replies_count_when_the_budget_is_used_up(tmp_path):
    with Judge({"score": 1}, kept=tmp_path) as judge:
        judge.ask(question)
        judge.ledger.max_cost = 0.0
        assert judge.ask(question) == 1


def test_secrets_are_neither_sent_nor_kept(tmp_path):
    secret = "hunter2-hunter2"
    said = [{"role": "user", "content": f"The article says {secret}."}]
    reply = json.dumps({"score": 1, "reason": f"It says {secret}."})
    with Judge(reply, kept=tmp_path, environ={"SERVICE_API_KEY": secret}) as judge:
        assert judge.ask(lambda asking: question(asking, messages=said, parse=lambda text: text)) == reply.replace(
            secret, "[redacted]"
        )
        assert judge.bodies[0]["messages"][0]["content"] == "The article says [redacted]."
    [kept] = find_stored(tmp_path, "judgements/*/*.json")
    assert secret not in kept.read_text()


def test_a_kept_file_that_is_broken_is_asked_for_anew(tmp_path):
    with Judge({"score": 3}, {"score": 4}, kept=tmp_path) as judge:
        judge.ask(question)
        [kept] = find_stored(tmp_path, "judgements/*/*.json")
        kept.write_text(kept.read_text()[:40])
        assert judge.ask(question) == 4


def test_rows_that_are_asked_side_by_side_keep_their_own_replies(tmp_path):
    def numbered(asking, number):
        messages = [{"role": "user", "content": f"Row {number}"}]
        return question(asking, messages=messages)

    async def all_of_them(asking):
        return await asyncio.gather(*(numbered(asking, number) for number in range(20)))

    with Judge(lambda body: {"score": int(body["messages"][-1]["content"].split()[1])}, kept=tmp_path) as judge:
        assert judge.ask(all_of_them) == list(range(20))
        assert judge.ask(all_of_them) == list(range(20))
        assert len(judge.bodies) == 20


def test_the_error_of_the_parser_is_sent_to_the_judge():
    def parse(text):
        if "b" not in text:
            raise InvalidReply("- criterion: found no 'b'")
        return text

    with Judge("a", "ab") as judge:
        assert judge.ask(lambda asking: question(asking, parse=parse)) == "ab"
    assert "- criterion: found no 'b'" in judge.bodies[1]["messages"][-1]["content"]
