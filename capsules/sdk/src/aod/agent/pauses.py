"""Pauses before retries of a model request: they grow, differ between agents, and end before the run does."""

from __future__ import annotations

import random
from asyncio import sleep
from datetime import UTC, datetime

__all__ = ["next_pause", "seconds_until", "sleep"]

#: First and maximum pause, in seconds; pauses double. The pauses of the default number of retries last more than 30
#: seconds in total, so that an agent outlasts a restart of its provider.
PAUSE_SECONDS_FIRST, PAUSE_SECONDS_MAX = 1.0, 16.0
#: Maximum random part that is added to a pause, as a fraction: not all agents retry at the same time.
RANDOM_PART_MAX = 0.25
#: Maximum accepted Retry-After, in seconds; a longer one ends the retries.
RETRY_AFTER_SECONDS_MAX = 30.0


def next_pause(attempt: int, retry_after_seconds: float | None, seconds_left: float | None) -> float | None:
    """Seconds between ``attempt`` (from 1) and the next one.

    None if the provider requests a longer pause than the maximum, or if the run ends before the next attempt:
    ``seconds_left`` until then, None without an end.
    """
    requested = retry_after_seconds or 0.0
    if requested > RETRY_AFTER_SECONDS_MAX:
        return None
    growing = min(PAUSE_SECONDS_FIRST * 2 ** (attempt - 1), PAUSE_SECONDS_MAX)
    seconds: float = max(growing * random.uniform(1, 1 + RANDOM_PART_MAX), requested)
    return seconds if seconds_left is None or seconds < seconds_left else None


def seconds_until(deadline: datetime | None) -> float | None:
    """None without a deadline."""
    return None if deadline is None else (deadline - datetime.now(UTC)).total_seconds()
