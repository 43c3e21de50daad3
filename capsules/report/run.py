"""The bridge: hands the payload to `execute` in src/main.py and its answer to the orchestrator.

It checks both against schema.json and knows nothing of the task: the same file stands in every
capsule. Exit codes: 0 done, 2 unfit input, 3 unfit output, 70 `execute` failed, 143 stopped.
"""

import json
import os
import signal
import sys
import traceback
from pathlib import Path

from jsonschema import Draft202012Validator
from jsonschema.exceptions import best_match

INPUT = Path(os.environ.get("AOD_INPUT", "/io/input.json"))
OUTPUT = Path(os.environ.get("AOD_OUTPUT", "/io/output.json"))
SCHEMA = json.loads(Path(__file__).with_name("schema.json").read_text("utf-8"))


class ContractBroken(Exception):
    """A payload or an answer that does not fit schema.json."""

    def __init__(self, side, error):
        super().__init__(f"{side}{error.json_path[1:]}: {error.message}")
        self.code = f"{side}_invalid"
        self.exit_code = {"input": 2, "output": 3}[side]


def check(side, value):
    error = best_match(Draft202012Validator(SCHEMA[side]).iter_errors(value))
    if error is not None:
        raise ContractBroken(side, error)


def write(answer):
    """Writes output.json whole or not at all: a half-written answer must never be read."""
    part = OUTPUT.with_suffix(".part")
    part.write_text(json.dumps(answer, ensure_ascii=False, allow_nan=False), "utf-8")
    part.replace(OUTPUT)


def main():
    # At once, even in the middle of a wait: all that is left behind belongs to the container.
    signal.signal(signal.SIGTERM, lambda *_: os._exit(143))
    try:
        inputs = json.loads(INPUT.read_text("utf-8"))
        check("input", inputs)
        from src.main import execute  # Slow imports come after the checks, and fail as errors do.

        answer = execute(inputs)
        check("output", answer)
        write(answer)
        return 0
    except Exception as problem:
        traceback.print_exc()
        code = getattr(problem, "code", "exception")
        detail = getattr(problem, "detail", type(problem).__name__)
        retryable = getattr(problem, "retryable", False)
        write({"error": {"code": code, "message": str(problem), "detail": detail, "retryable": retryable}})
        return getattr(problem, "exit_code", 70)


if __name__ == "__main__":
    sys.exit(main())
