import pytest
from stats import median


def test_one_value():
    assert median([7]) == 7


@pytest.mark.parametrize("values", [[3, 1, 2], [2, 1, 3], [9, 2, 2, 1, 8]])
def test_middle(values):
    assert median(values) == 2


def test_two_in_the_middle():
    assert median([4, 1, 3, 2]) == 2.5


def test_leaves_the_list_alone():
    values = [3, 1, 2]
    median(values)
    assert values == [3, 1, 2]
