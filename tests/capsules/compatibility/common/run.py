"""Runs the capsule: input.json in, output.json out. Whatever goes wrong ends with status 1."""

import json
import sys
from pathlib import Path

from jsonschema import ValidationError, validate

from src.main import execute

IO = Path("/io")


def main():
    schema = json.loads((Path(__file__).parent / "schema.json").read_text())
    try:
        inputs = json.loads((IO / "input.json").read_text())
        validate(inputs, schema["input"])
        output = execute(inputs)
        validate(output, schema["output"])
    except (OSError, ValueError, ValidationError) as error:
        print(f"failed: {error}", file=sys.stderr)
        sys.exit(1)
    (IO / "output.json").write_text(json.dumps(output, indent=2))


if __name__ == "__main__":
    main()
