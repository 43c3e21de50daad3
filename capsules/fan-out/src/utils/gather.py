"""Calls a function for each entry of a list, several concurrently; results keep the order of the list."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from threading import Lock


@dataclass
class Result:
    """The result of one entry: a value, or a failure."""

    value: object = None
    failure: Exception | None = None


class EntryFailed(Exception):
    """The failure of one entry that ended all calls; `index` counts from 0."""

    def __init__(self, index, failure):
        super().__init__(f"entry {index}: {failure}")
        self.index = index
        self.failure = failure


def gather(entries, call, parallel, failures, cancel=None):
    """Calls `call(index, entry)` for each entry, at most `parallel` concurrently; returns a Result for each.

    An exception of the types `failures` is the failure of its entry. With `cancel`, the first failure ends all calls:
    no further call begins, `cancel()` cancels those in progress, and EntryFailed is raised. Any other exception also
    ends all calls, and is raised unchanged.
    """
    ends, lock = [], Lock()

    def end(reason):
        with lock:
            ends.append(reason)
            return len(ends) == 1

    def attempt(numbered):
        if ends:
            return Result()
        try:
            return Result(value=call(*numbered))
        except failures as failure:
            if cancel is not None and end(EntryFailed(numbered[0], failure)):
                cancel()
            return Result(failure=failure)
        except BaseException as problem:
            end(problem)
            return Result()

    with ThreadPoolExecutor(parallel) as hands:
        results = list(hands.map(attempt, enumerate(entries)))
    if ends:
        raise ends[0]
    return results
