"""Helpers for tests of capsules and model proxies: a test case with its own ``/io``, and a stub of model providers."""

from __future__ import annotations

from .case import CapsuleTestCase
from .stub import Recorded, StubServer

__all__ = ["CapsuleTestCase", "Recorded", "StubServer"]
