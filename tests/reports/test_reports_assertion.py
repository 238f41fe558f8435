from __future__ import annotations

from reports_samples import failed_check, make_case, make_evaluation, make_judge, make_run

from pytest_agentbench.errors import JudgeError, ProviderError
from pytest_agentbench.records.case import Expectation, Expectations, Message
from pytest_agentbench.records.check_specs import Check
from pytest_agentbench.records.evaluation import ExpectationVerdict, JudgeIteration, JudgeVerdict, MetricResult, Scored
from pytest_agentbench.records.run import FileChange, FileFacts, FinalOutputEvent, ToolCallEvent, ToolResultEvent
from pytest_agentbench.records.run_checks import StatusIs
from pytest_agentbench.reports.assertion import error_report, failure_report, headline


def test_shows_every_fault_the_answer_and_the_trace():
    evaluation = make_evaluation(
        checks=(
            failed_check(),
            failed_check("fine").model_copy(update={"outcome": "passed"}),
            failed_check("hook", message="ValueError: no", expected=None, actual=None).model_copy(
                update={"outcome": "error"}
            ),
        ),
        metrics=(
            MetricResult(name="f1_score", score=0.25, threshold=0.8, passed=False),
            MetricResult(name="noted", score=0.1),
            MetricResult(name="mine", score=None, threshold=0.5, passed=False, error="returned 7, expected 0 to 1"),
        ),
        judge=make_judge(summary="Names the wrong city.", unmet_hard=("names Paris",)),
    )
    report = failure_report(make_case(require_hard=True), make_run(), evaluation, "outputs/runs/run_1.json")
    assert (
        report
        == """\
check has-answer: the answer does not hold 'Paris' (and 5 more)

check  has-answer        the answer does not hold 'Paris'
                         expected: 'Paris'
                         got:      'It is London.'
broken check  hook       ValueError: no
metric  f1_score         expected: at least 0.800
                         got:      0.250
metric  mine             returned 7, expected 0 to 1
judge  overall           scored 4.2, at least 5.0 of 10 is wanted; not met: names Paris (task 3.5, spark 6)
                         reason:   Names the wrong city.
judge  hard expectation  not met: names Paris

answer:
    It is London.
full trace: outputs/runs/run_1.json"""
    )


def test_shows_the_question_the_last_tool_errors_and_a_short_answer_once():
    trace = [
        event
        for number in range(4)
        for event in (
            ToolCallEvent(sequence=0, at=0.1, call_id=f"c{number}", name="look", arguments={"at": number}),
            ToolResultEvent(
                sequence=0, at=0.2, call_id=f"c{number}", name="look", content="error: no map", is_error=True
            ),
        )
    ]
    trace.append(FinalOutputEvent(sequence=0, at=0.3, content="It is London.\n"))
    case = make_case(messages=(Message(role="user", content="Capital of\nFrance?"),))
    evaluation = make_evaluation(checks=(failed_check(actual="It is London."),))
    report = failure_report(case, make_run(trace=tuple(trace)), evaluation, None)
    assert report.splitlines()[3:] == [
        "",
        "question: Capital of France?",
        "tool errors (last 3 of 4):",
        '    look {"at": 1}',
        "        error: no map",
        '    look {"at": 2}',
        "        error: no map",
        '    look {"at": 3}',
        "        error: no map",
    ]


def test_a_judges_failure_leads_with_score_bar_and_what_is_not_met():
    soft = tuple(Expectation(text=text) for text in ("is friendly", "names a river", "is brief"))
    expectations = Expectations(hard_expectations=(Expectation(text="names Paris"),), soft_expectations=soft)
    votes = [
        JudgeIteration(
            judge_run_id="main",
            judge_id="main",
            model="m",
            repetition=at,
            status="success",
            verdict=JudgeVerdict(
                summary="Well written!",
                dimensions={},
                overall=Scored(score=4),
                expectations=[
                    ExpectationVerdict(kind="soft", index=index, met=met) for index, met in enumerate((1, 0, at))
                ],
            ),
        )
        for at in (0, 1)
    ]
    judge = make_judge(summary="Well written!", dimensions={}, unmet_hard=("names Paris",), iterations=tuple(votes))
    case, evaluation = make_case(expectations=expectations), make_evaluation(judge=judge)
    first = "judge overall: scored 4.2, at least 5.0 of 10 is wanted; not met: names Paris; names a river"
    assert headline(case, make_run(), evaluation) == first
    assert failure_report(case, make_run(), evaluation, None).splitlines()[:2] == [
        first,
        "    reason:   Well written!",
    ]


def test_a_run_that_did_not_succeed_says_so_first():
    report = failure_report(make_case(), make_run(None, "timed_out"), make_evaluation(checks=(failed_check(),)), None)
    assert report.splitlines()[0].startswith("run status: expected success, got timed_out (run_timeout): the run took")
    assert "answer: none" in report


def test_a_status_that_the_case_expects_is_no_fault():
    check = Check(check_id="slow", declarative=StatusIs(kind="status_is", status="timed_out"))
    run, evaluation = make_run(None, "timed_out"), make_evaluation(checks=(failed_check(),))
    assert headline(make_case(checks=(check,)), run, evaluation) == "check has-answer: the answer does not hold 'Paris'"


def test_other_reasons_are_shown_where_nothing_else_failed():
    evaluation = make_evaluation(reasons=("nothing decides this case",))
    assert headline(make_case(), make_run(), evaluation) == "case: nothing decides this case"


def test_the_agents_text_cannot_steer_the_terminal():
    evil = "one\x1b[2Jtwo\u202ethree\rfour\ud800"
    check = failed_check(message=evil, expected=evil, actual=evil)
    report = failure_report(make_case(), make_run(evil), make_evaluation(checks=(check,)), evil)
    assert not set(report) & set("\x1b\r\u202e\ud800")
    assert "one\\x1b[2Jtwo\\u202ethree" in report


def test_the_assertion_stays_short_for_any_output():
    checks = tuple(failed_check(f"check-{n}", message="m" * 10_000, actual="\n" * 10_000) for n in range(50))
    answer = "\n".join(f"line {n} " + "x" * 100_000 for n in range(100))
    report = failure_report(make_case(), make_run(answer), make_evaluation(checks=checks), "run_1.json")
    lines = report.splitlines()
    assert len(lines) <= 42
    assert max(map(len, lines)) < 220
    assert "... and 42 more that failed" in lines
    assert "answer (last 10 of 100 lines):" in lines
    assert lines[-2].strip().startswith("line 99 x")


def test_changes_of_files_are_summarised():
    facts = FileFacts(kind="file", mode=0o644, size=100_000)
    diff = "".join(f"+\x1b[2Jline {n} {'x' * 1000}\n" for n in range(5_000))
    changes = tuple(
        FileChange(path=f"f{n}\x1b[31m", change="added", after=facts, diff=diff if n == 0 else None) for n in range(900)
    )
    locked = FileChange(path="a", change="mode", before=facts, after=facts.model_copy(update={"mode": 0o400}))
    report = failure_report(make_case(), make_run(changes=(locked, *changes)), make_evaluation(), None)
    lines = report[report.index("workspace:") :].splitlines()
    assert lines[1:3] == ["    mode a (644 -> 400)", r"    added f0\x1b[31m (file, 100,000 bytes)"]
    assert lines[3].startswith(r"        +\x1b[2Jline 0 xxx")
    assert "        [... 4,992 more lines ...]" in lines
    assert lines[-1] == "    ... and 894 more changes"
    assert len(lines) == 18
    assert max(map(len, lines)) <= 170
    assert "\x1b" not in report


def test_long_values_are_cut_where_they_begin_to_differ():
    check = failed_check(expected="a" * 500 + "Paris", actual="a" * 500 + "London")
    report = failure_report(make_case(), make_run(), make_evaluation(checks=(check,)), None)
    assert "expected: ..." + "a" * 20 + "Paris" in report
    assert "got:      ..." + "a" * 20 + "London" in report


def test_near_misses_of_metrics_show_that_they_miss():
    metric = MetricResult(name="f1", score=0.79996, threshold=0.8, passed=False)
    assert headline(make_case(), make_run(), make_evaluation(metrics=(metric,))) == (
        "metric f1: expected at least 0.80000, got 0.79996"
    )


def test_infrastructure_errors_say_what_happened_and_what_to_do():
    error = ProviderError("model 'gpt4o': HTTP 429. Lower limits.max_concurrency.", code="rate_limited", retryable=True)
    report = error_report(error, make_run(None, "provider_error"), "run_1.json")
    assert report.splitlines() == [
        "ProviderError (rate_limited): model 'gpt4o': HTTP 429. Lower limits.max_concurrency.",
        "",
        "This is no verdict on the agent: the run counts as an error, not as a failure.",
        "The same request may work later.",
        "trace until then: run_1.json",
    ]
    assert "remedy:" in error_report(JudgeError("no judge run gave a verdict"))
