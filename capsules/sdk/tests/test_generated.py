"""Thousands of schemas and payloads from a seed: the SDK and the orchestrator's own code answer alike.

AOD_CONTRACT_EXAMPLE is the program built of crates/domain/examples/contract.rs, as test.sh does.
"""

from __future__ import annotations

import collections
import json
import os
import subprocess

import pytest

import generated
from cases import answer

COUNT = int(os.environ.get("AOD_GENERATED_CASES", "10000"))
SEED = int(os.environ.get("AOD_GENERATED_SEED", "1"))
#: Minimum number of each kind of case, in 1,000, so that the comparison is meaningful.
LEAST = {"accepted": 200, "schema": 50, "payload": 100, "rename": 20, "declared": 10, "inferred": 100, "defaults": 20}


#: Tests that share the cases, so that they run on several processors.
PARTS = 4


@pytest.mark.parametrize("seed", range(SEED, SEED + PARTS))
def test_both_sides_answer_alike(seed: int) -> None:
    program = os.environ["AOD_CONTRACT_EXAMPLE"]
    count = COUNT // PARTS
    cases = list(generated.cases(seed, count))
    lines = "".join(json.dumps(case) + "\n" for case in cases)
    answers = subprocess.run([program], input=lines, capture_output=True, text=True, check=True, timeout=600)
    seen: collections.Counter[str] = collections.Counter()
    for number, (case, line) in enumerate(zip(cases, answers.stdout.splitlines(), strict=True)):
        expected = json.loads(line)
        found = answer(case)
        # As text, because 1, 1.0 and True are equal in Python.
        place = f"case {number} of seed {seed}: {json.dumps(case)}"
        assert json.dumps(found, sort_keys=True) == json.dumps(expected, sort_keys=True), place
        seen[expected.get("refused", "accepted")] += 1
        seen.update("declared" if it["declared"] else "inferred" for it in expected.get("references", []))
        seen["defaults"] += expected.get("payload", case["instance"]) != case["instance"]
    for kind, least in LEAST.items():
        assert seen[kind] * 1000 >= least * count, seen
