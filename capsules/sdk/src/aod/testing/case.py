"""A test of a capsule's logic, without a container."""

from __future__ import annotations

import tempfile
import unittest
from pathlib import Path
from unittest import mock

from ..context import Context


class CapsuleTestCase(unittest.TestCase):
    """A test with its own ``/io`` directory: ``self.io`` is its path, ``self.context`` uses it and drops log lines."""

    io: Path
    context: Context

    def setUp(self) -> None:
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.io = Path(directory.name)
        (self.io / "input").mkdir()
        for patch in (mock.patch.dict("os.environ", {"AOD_IO": directory.name}), mock.patch.object(Context, "log")):
            patch.start()
            self.addCleanup(patch.stop)
        self.context = Context()
