"""Questions of the controller to all workers: every answer counts once, and nobody waits for ever."""

from __future__ import annotations

import queue

import pytest

from pytest_agentbench.distributed import questions
from pytest_agentbench.distributed.questions import Questions
from pytest_agentbench.engine.limits import Line

RETUNE = {"do": "retune", "concurrency": 4, "max_cost": None}


class Worker:
    """The other end of a line. It answers each question with `answers`, or never."""

    def __init__(self, asked: Questions, answers: dict | None) -> None:
        self.sent, self.asked, self.answers = queue.SimpleQueue(), asked, answers
        self.line = Line(self)

    def send(self, message):
        self.sent.put(message)
        _, number, _ = message
        if self.answers is not None:
            self.asked.receive(self.line, number - 1, {"late": True})
            self.asked.receive(self.line, number, self.answers)


@pytest.fixture
def asked(monkeypatch):
    monkeypatch.setattr(questions, "_SECONDS", 0.05)
    return Questions()


def test_the_answers_of_all_workers_are_returned(asked):
    workers = [Worker(asked, {"ended": number}) for number in range(3)]
    for _ in range(2):
        answers = asked.ask([worker.line for worker in workers], {"do": "state"})
        assert sorted(answer["ended"] for answer in answers) == [0, 1, 2]


@pytest.mark.parametrize(
    ("answers", "error", "expected"),
    [(None, TimeoutError, "1 of 2 workers do not answer"), ({"error": "KeyError()"}, RuntimeError, "KeyError")],
)
def test_a_worker_that_does_not_answer_is_an_error(asked, answers, error, expected):
    lines = [Worker(asked, {"ended": 1}).line, Worker(asked, answers).line]
    with pytest.raises(error, match=expected):
        asked.ask(lines, {"do": "state"})


def test_a_worker_that_starts_late_gets_the_changed_limits(asked):
    early, late = Worker(asked, {}), Worker(asked, {})
    asked.repeat(early.line)
    asked.ask([early.line], RETUNE)
    asked.ask([early.line], {**RETUNE, "concurrency": None, "max_cost": 2.0})
    asked.repeat(late.line)
    assert late.sent.get(timeout=5) == ("ask", 0, {**RETUNE, "max_cost": 2.0})
    early.line.send(("end", 0, None))
    assert [early.sent.get(timeout=5)[0] for _ in range(3)] == ["ask", "ask", "end"]
