from __future__ import annotations

from pytest_agentbench.checks.run import BEYOND_ANSWERS, BUILTIN_CHECKS

OF_ANSWERS = {
    *("final_response_present", "status_is", "regex_match", "json_schema", "json_path_equals", "metric"),
    *("contains", "icontains", "not_contains", "starts_with", "equals"),
    # These are decided by the checks that they combine
    *("any_of", "all_of", "not"),
}


def test_of_every_kind_it_is_known_whether_an_answer_alone_decides_it():
    assert set(BUILTIN_CHECKS) == OF_ANSWERS | BEYOND_ANSWERS
    assert not OF_ANSWERS & BEYOND_ANSWERS
