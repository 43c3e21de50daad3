"""Help for tests of capsules and of what stands between them and models: a stub of the models' providers."""

from __future__ import annotations

from .stub import Recorded, StubServer

__all__ = ["Recorded", "StubServer"]
