"""What all records share."""

import threading

from pytest_agentbench.records.base import Record


def test_a_model_that_many_threads_use_first_is_built_whole() -> None:
    for _ in range(20):

        class Inner(Record):
            name: str

        class Outer(Record):
            inner: Inner
            number: int = 0

        begin = threading.Barrier(8)
        made: list[Outer] = []

        def make(model: type[Record] = Outer, begin: threading.Barrier = begin, made: list = made) -> None:
            begin.wait()
            made.append(model.model_validate({"inner": {"name": "a"}, "number": 1}))

        threads = [threading.Thread(target=make) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert [each.model_dump() for each in made] == [{"inner": {"name": "a"}, "number": 1}] * 8
