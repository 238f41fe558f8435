"""The process that watches hidden tests judges their reports."""

from __future__ import annotations

import json
import os
import sys

import pytest

from pytest_agentbench.checks.verifying import pytest_driver as driver

KEY = b"k" * 32


class Reporting:
    """Signed events for a watcher, as the tests' process sends them."""

    def __init__(self) -> None:
        self.heard, self.number = driver._TestsReport(KEY), 0

    def say(self, event: str, **fields: object) -> None:
        self.raw(json.dumps({"event": event, **fields}).encode())

    def raw(self, text: bytes, key: bytes = KEY) -> None:
        signature = driver._signature(key, self.number, text)
        self.number += 1
        self.heard.take(signature + b" " + text + b"\n", printed=False)

    def phases(self, test: str, **outcomes: str) -> None:
        for when, outcome in outcomes.items():
            self.say("report", test=test, when=when, outcome=outcome, message=f"{when} {outcome}")


@pytest.fixture
def told() -> Reporting:
    return Reporting()


def test_a_test_that_went_through_all_phases_passed(told):
    told.say("loaded")
    told.say("collected", test="t::a")
    told.say("collected", test="t::b")
    told.phases("t::a", setup="passed", call="passed", teardown="passed")
    told.say("ended", value=1)
    assert told.heard.told() == {
        "loaded": True,
        "ended": 1,
        "tests": {"t::a": {"outcome": "passed", "message": ""}, "t::b": {"outcome": "not run", "message": ""}},
        "problems": [],
        "output": "",
    }


def test_a_process_without_reports_has_loaded_nothing_and_not_ended(told):
    assert told.heard.told() == {"loaded": False, "ended": None, "tests": {}, "problems": [], "output": ""}


@pytest.mark.parametrize(
    ("phases", "outcome", "message"),
    [
        ({"setup": "passed"}, "unfinished", ""),
        ({"setup": "passed", "call": "passed"}, "unfinished", ""),
        ({"call": "passed", "teardown": "passed"}, "unfinished", ""),
        ({"setup": "failed", "teardown": "passed"}, "failed", "setup failed"),
        ({"setup": "passed", "call": "failed", "teardown": "passed"}, "failed", "call failed"),
        ({"setup": "passed", "call": "passed", "teardown": "failed"}, "failed", "teardown failed"),
        ({"setup": "skipped", "teardown": "passed"}, "skipped", "setup skipped"),
        ({"setup": "passed", "call": "xfailed", "teardown": "passed"}, "xfailed", "call xfailed"),
        ({"setup": "passed", "call": "xpassed", "teardown": "failed"}, "failed", "teardown failed"),
        ({"setup": "passed", "call": "failed", "teardown": "failed"}, "failed", "call failed"),
        ({"setup": "skipped", "call": "xfailed", "teardown": "passed"}, "skipped", "setup skipped"),
    ],
)
def test_the_worst_phase_decides_and_gives_the_message(told, phases, outcome, message):
    told.phases("t", **phases)
    assert told.heard.told()["tests"] == {"t": {"outcome": outcome, "message": message}}


def test_an_unsigned_or_repeated_line_is_a_problem(told):
    line = driver._signature(KEY, 0, b'{"event": "loaded"}') + b' {"event": "loaded"}\n'
    told.heard.take(line, printed=False)
    told.heard.take(line, printed=False)  # the second one's number is 1
    told.heard.take(b'{"event": "ended", "value": 0}\n', printed=False)
    found = told.heard.told()
    foreign = ("", "a report does not come from the program that runs the tests")
    assert (found["loaded"], found["ended"], found["problems"]) == (True, None, [foreign, foreign])
    told.number = 1
    told.raw(b'{"event": "ended", "value": 0}', key=b"x" * 32)
    assert told.heard.told()["ended"] is None


@pytest.mark.parametrize(
    "text",
    [
        b"{",
        b"[]",
        b"{}",
        b'{"event": "collected", "test": 1}',
        b'{"event": "report", "test": "t", "when": "call", "outcome": "fine", "message": ""}',
        b'{"event": "ended", "value": "x"}',
        b'{"event": "ended", "value": 1e999}',
        b"[" * 100_000,
    ],
)
def test_a_malformed_line_is_a_problem(told, text):
    told.raw(text)
    assert told.heard.told()["problems"] == [("", "the tests' process reported something that cannot be read")]


def test_a_line_that_comes_in_pieces_is_one(told):
    line = driver._signature(KEY, 0, b'{"event": "loaded"}') + b' {"event": "loaded"}\n'
    told.heard.take(line[:30], printed=False)
    assert not told.heard.told()["loaded"]
    told.heard.take(line[30:], printed=False)
    assert told.heard.told()["loaded"]


def test_the_end_of_the_printed_text_is_kept(told):
    told.heard.take(b"x" * 20_000 + b"end\xff", printed=True)
    found = told.heard.told()["output"]
    assert (len(found), found[-4:]) == (16_384, "end\ufffd")
    told.heard.take(b" and more", printed=True)
    assert told.heard.told()["output"].endswith("end\ufffd and more")


def test_messages_and_problems_are_bounded(told):
    for number in range(60):
        told.say("problem", where=f"file {number}", message="long " * 1000 + str(number))
    problems = told.heard.told()["problems"]
    assert (len(problems), problems[0][0], problems[-1][0]) == (50, "file 0", "file 49")
    assert [len(message) for _, message in problems] == [2000] * 50
    assert problems[7][1].endswith("7")
    told.phases("t", call="failed")
    assert told.heard.told()["tests"]["t"] == {"outcome": "failed", "message": ""}  # no room for its message


def test_too_much_is_a_long_line_or_very_many_names(told):
    assert not told.heard.too_much
    told.heard.take(b"x" * 65_536, printed=False)
    assert not told.heard.too_much
    told.heard.take(b"x", printed=False)
    assert told.heard.too_much
    named = Reporting()
    for number in range(65):
        named.say("collected", test=f"{number:03}" + "n" * 32_765)
        assert named.heard.too_much == (number == 64)  # 65 names of 32 KiB are over 2 MiB
    named = Reporting()
    for _ in range(100):
        named.say("collected", test="n" * 60_000)
    assert not named.heard.too_much  # one name, however often it is said
    printed = Reporting()
    printed.heard.take(b"x" * 40 * 2**20, printed=True)
    assert not printed.heard.too_much


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("tests/a.py::t", True),
        ("tests/a.py::t[1]", True),
        ("tests/a.py::tt", False),
        ("tests/b.py::T::m", True),
        ("tests/b.py::Tm", False),
        ("tests/c.py::x", True),
        ("tests/c.pyx", False),
        ("more/deep/d.py::x", True),
        ("moreover/d.py::x", False),
    ],
)
def test_a_test_is_wanted_by_its_name_its_class_its_file_or_its_folder(name, wanted):
    assert driver._is_wanted(name, ("tests/a.py::t", "tests/b.py::T", "tests/c.py", "more/")) == wanted


def test_a_module_that_shadows_a_test_file_is_found(tmp_path):
    (tmp_path / "test_a.py").write_text("")
    assert driver._root_and_shadow(str(tmp_path / "test_a.py")) == (str(tmp_path), None)
    (tmp_path / "pack").mkdir()
    (tmp_path / "pack" / "__init__.py").write_text("")
    (tmp_path / "pack" / "test_b.py").write_text("")
    assert driver._root_and_shadow(str(tmp_path / "pack" / "test_b.py")) == (str(tmp_path), None)
    assert driver._root_and_shadow(str(tmp_path / "pack" / "__init__.py")) == (str(tmp_path), None)
    (tmp_path / "test_a").mkdir()
    (tmp_path / "test_a" / "__init__.py").write_text("")
    shadow = str(tmp_path / "test_a" / "__init__.py")
    assert driver._root_and_shadow(str(tmp_path / "test_a.py")) == (str(tmp_path), shadow)


def test_an_exit_code_and_a_signal_are_distinguished():
    for code, expected in (("import sys; sys.exit(3)", 3), ("import os; os.kill(os.getpid(), 9)", -9)):
        child = os.posix_spawn(sys.executable, [sys.executable, "-I", "-S", "-c", code], {})
        assert driver._exit_code(os.waitpid(child, 0)[1]) == expected


def test_texts_are_such_that_utf_8_can_carry():
    assert driver._require_text("a\ud800") == "a?"
    with pytest.raises(TypeError):
        driver._require_text(1)


class Report:
    def __init__(self, longrepr: object = "", wasxfail: str = "") -> None:
        self.longrepr, self.wasxfail = longrepr, wasxfail


def test_the_end_of_a_reports_text_is_returned():
    assert driver._tail(Report("y" * 3000 + "end")) == "y" * 1997 + "end"
    assert driver._tail(Report(("file", 3, "not today"))) == "not today"
    assert driver._tail(Report("", "known")) == "known"
    assert driver._tail(object()) == ""


def test_a_pipe_is_written_whole_and_a_closed_one_is_left(tmp_path):
    reading, writing = os.pipe()
    reports = driver._Reports(writing, KEY)
    reports.add("loaded")
    reports.add("ended", value=2)
    heard = driver._TestsReport(KEY)
    heard.take(driver._read(reading) or b"", printed=False)
    assert (heard.told()["loaded"], heard.told()["ended"], heard.told()["problems"]) == (True, 2, [])
    os.set_blocking(reading, False)
    assert driver._read(reading) is None
    os.close(reading)
    reports.add("ended", value=3)
    driver._send(writing, {"x": 1})
    os.close(writing)
