from __future__ import annotations

import functools
import itertools
import queue
import socket
import threading
import time
import types

from hypothesis import given
from hypothesis import strategies as st

from pytest_agentbench.distributed.shares import ControllerLink, deal
from pytest_agentbench.engine.budget import Budget
from pytest_agentbench.engine.limits import Line, steady_socket


@given(st.lists(st.integers(), max_size=300), st.integers(1, 20))
def test_every_index_is_dealt_once_and_evenly(indices, workers):
    shares = deal(indices, workers)
    assert len(shares) == workers
    assert sorted(index for share in shares for index in share) == sorted(indices)
    sizes = [len(share) for share in shares]
    block = max(1, len(indices) // (8 * workers))
    assert max(sizes) - min(sizes) <= block


@given(st.integers(0, 300), st.integers(1, 20))
def test_each_share_keeps_the_order(count, workers):
    for share in deal(range(count), workers):
        assert share == sorted(share)


def test_neighbours_stay_together():
    first, second = deal(range(160), 2)
    assert first[:10] == list(range(10))
    assert second[:10] == list(range(10, 20))


class Channel:
    def __init__(self, *, gone=False):
        self.sent, self.gone = queue.SimpleQueue(), gone

    def send(self, message):
        if self.gone:
            raise OSError("closed")
        self.sent.put(message)


class Stuck:
    """The channel of a worker that reads nothing: its pipe is full."""

    def __init__(self):
        self.reads = threading.Event()

    def send(self, message):
        assert self.reads.wait(10)


def linked(budget=None):
    """A link that books into the budget and drains as the session does, with one live channel and one that is gone."""
    budget = budget or Budget()

    def spend(part, spendings):
        if reason := budget.book(part, spendings):
            link.tell("drain", reason)

    link = ControllerLink(spend, lambda reason: link.tell("drain", reason), lambda runs, models: None)
    link.lines = [Line(Channel(gone=True)), Line(channel := Channel())]
    return link, channel


def sent(link, channel):
    """All that the last line has sent."""
    link.lines[-1].send("the end")
    return list(iter(functools.partial(channel.sent.get, timeout=5), "the end"))


def test_every_worker_is_notified_once_and_a_dead_one_is_skipped():
    link, channel = linked()
    link.tell("stop", "enough")
    link.tell("stop", "again")
    assert sent(link, channel) == [("stop", "enough")]


def test_a_worker_that_does_not_read_holds_up_no_other():
    link, channel = linked()
    link.lines.insert(0, Line(stuck := Stuck()))
    link.tell("stop", "enough")
    assert channel.sent.get(timeout=5) == ("stop", "enough")
    stuck.reads.set()


def test_a_used_up_budget_drains_the_workers():
    link, channel = linked(Budget(1.0))
    for cost in (0.4, None, 0.4, 0.4, 0.4):
        link._receive(link.lines[0], ("spent", "run", [(cost, None)]))
    [(order, reason)] = sent(link, channel)
    assert order == "drain"
    assert "1.2000 of 1.0000 USD" in reason


def test_a_worker_that_cannot_go_on_drains_the_others():
    link, channel = linked()
    link._receive(link.lines[0], ("drain", "the disk is full"))
    assert sent(link, channel) == [("drain", "the disk is full")]


def test_a_worker_that_starts_late_gets_the_messages_of_the_others():
    link, _ = linked()
    link.tell("drain", "enough")
    link.lines.append(Line(late := Channel()))
    link._receive(link.lines[-1], ("cases", 5, 1, ["gpt"]))
    assert sent(link, late) == [("drain", "enough")]


def test_a_closed_channel_delivers_all_earlier_messages():
    link, channel = linked()
    link.tell("stop", "enough")
    link.close()
    assert channel.sent.get(timeout=5) == ("stop", "enough")


class Pieces:
    """execnet's socket, writing in pieces as it does when the buffer is full."""

    def __init__(self, sock=None):
        self.sock, self.got = sock or socket.socket(), []

    def write(self, data):
        for byte in data:
            self.got.append(byte)
            time.sleep(0)  # another thread may run


def test_messages_of_several_threads_over_a_socket_do_not_mix():
    gateway = types.SimpleNamespace(_io=Pieces())
    steady_socket(gateway)
    steady_socket(gateway)
    writers = [threading.Thread(target=gateway._io.write, args=[bytes([n]) * 500]) for n in range(4)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    gateway._io.sock.close()
    assert [len(list(run)) for _, run in itertools.groupby(gateway._io.got)] == [500] * 4


def test_a_gateway_over_pipes_is_left_alone():
    gateway = types.SimpleNamespace(_io=types.SimpleNamespace(write=print))
    steady_socket(gateway)
    assert gateway._io.write is print
