import pytest
from agentbench_solution import Solution

solution = Solution()


def test_one_value():
    assert solution.call("stats:median", [7]) == 7


@pytest.mark.parametrize("values", [[3, 1, 2], [2, 1, 3], [9, 2, 2, 1, 8]])
def test_middle(values):
    assert solution.call("stats:median", values) == 2


def test_two_in_the_middle():
    assert solution.call("stats:median", [4, 1, 3, 2]) == 2.5


def test_leaves_the_list_alone():
    program = "from stats import median; values = [3, 1, 2]; median(values); print(values)"
    assert solution.run(["python3", "-c", program]) == (0, "[3, 1, 2]\n")
