"""Rearranges the output of a capsule into the input of the next one, by field names."""

import json
import os
from urllib.request import urlopen

ORCHESTRATOR = os.environ.get("ORCHESTRATOR_URL", "http://host.docker.internal:8000")


def execute(inputs: dict) -> dict:
    with urlopen(f"{ORCHESTRATOR}/capsules/{inputs['target_capsule']}/schema") as reply:
        wanted = json.load(reply)["input"]["properties"]
    source, mapping = inputs["source_output"], inputs.get("mapping") or {}
    names = {target: mapping.get(target, target) for target in wanted}
    return {target: source[name] for target, name in names.items() if name in source}
