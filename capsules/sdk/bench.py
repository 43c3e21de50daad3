"""Measures what an import costs, in new processes: in milliseconds, and as a ratio to a Python that does nothing.

Ends with 1 where `import aod` costs more than it may.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from statistics import median

#: Runs of each, alternating, so that all have the same conditions.
ROUNDS = 15
#: Maximum cost of `import aod` beyond an empty Python, in milliseconds.
IMPORT_MILLISECONDS_MAX = 80.0

NOTHING = "pass"
IMPORT = "import aod"
PROGRAMS = {
    NOTHING: "a Python that does nothing",
    IMPORT: "the import",
    "import aod.bridge, jsonschema_rs": "what a run without calls loads",
    "import aod.bridge, jsonschema_rs, aod.channel, aod.handoff": "what a run with calls loads",
}


def main() -> int:
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).with_name("src"))}
    # Measured with compiled modules, as in an image.
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    environment["PYTHONPYCACHEPREFIX"] = str(Path(sys.prefix) / "pycache")
    samples: dict[str, list[float]] = {program: [] for program in PROGRAMS}
    for _ in range(ROUNDS + 1):
        for program, times in samples.items():
            began = time.perf_counter()
            subprocess.run([sys.executable, "-c", program], env=environment, check=True)
            times.append((time.perf_counter() - began) * 1000)
    # The first round compiles.
    medians = {program: median(times[1:]) for program, times in samples.items()}
    floor = medians[NOTHING]
    for program, meaning in PROGRAMS.items():
        took = medians[program]
        print(f"{took:7.1f} ms {took - floor:+7.1f} ms {took / floor:6.2f} x   {meaning}: {program}")
    cost = medians[IMPORT] - floor
    if cost > IMPORT_MILLISECONDS_MAX:
        print(
            f"missed: `{IMPORT}` costs {cost:.1f} ms; expected at most {IMPORT_MILLISECONDS_MAX:.0f} ms",
            file=sys.stderr,
        )
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
