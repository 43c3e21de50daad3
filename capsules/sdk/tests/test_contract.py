"""The golden cases, which also test the orchestrator; and that both have the same engine."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

import aod
from aod.contract.numbers import Inexact, parse_float, problems
from aod.contract.schema import read_json
from aod.file_name import NameRefused, check_name, relative, unique_name
from cases import answer, expanded

SDK = Path(__file__).parents[1]
REPOSITORY = SDK.parents[1]
GOLDEN = REPOSITORY / "tests" / "contract"
CASES = [(file.stem, case) for file in sorted(GOLDEN.glob("cases/*.json")) for case in read_json(file.read_bytes())]
NAMES = json.loads((GOLDEN / "names.json").read_text())


def test_there_are_cases() -> None:
    assert len(CASES) >= 150


@pytest.mark.parametrize("golden", [case for _, case in CASES], ids=[f"{file}: {case['name']}" for file, case in CASES])
def test_golden(golden: dict[str, Any]) -> None:
    # As text, because 1, 1.0 and True are equal in Python.
    found = json.dumps(answer(golden["case"]), sort_keys=True)
    assert found == json.dumps(expanded(golden["expected"]), sort_keys=True)


def test_golden_names() -> None:
    for proper in map(expanded, NAMES["proper"]):
        assert check_name(proper) == proper
    for refused in map(expanded, NAMES["refused"]):
        with pytest.raises(NameRefused):
            check_name(refused)
    for case in NAMES["relative"]:
        assert relative(case["directory"], case["text"]) == case["name"]
    for case in NAMES["unique"]:
        found = unique_name(expanded(case["name"]), set(map(expanded, case["taken"])))
        assert found == expanded(case["expected"])


def test_a_name_that_is_not_utf_8_is_refused() -> None:
    with pytest.raises(NameRefused, match="UTF-8"):
        check_name("a\udcff")


def test_problems_tell_place_value_and_expectation() -> None:
    schema = {"input": {"required": ["must"], "properties": {"n": {"type": "integer"}, "f": {"enum": [1, 2]}}}}
    contract = aod.Contract(json.dumps({**schema, "output": {}}).encode())
    with pytest.raises(aod.Unfit) as refused:
        contract.check_input({"n": "x" * 300, "f": 3}, "input", lambda name: None)
    told = {str(problem) for problem in refused.value.problems}
    assert 'top level: the required property "must" is missing' in told
    assert "/f: 3 is not one of 1 or 2" in told
    (long,) = (text for text in told if text.startswith("/n"))
    assert 'is not of type "integer"' in long
    assert "x" * 121 not in long


@pytest.mark.parametrize(
    ("literal", "words"),
    [
        ("18446744073709551616", "expected an integer from -9223372036854775808 to 18446744073709551615"),
        ("-9223372036854775809", "expected an integer from"),
        ("7" * 5_000, "expected an integer from"),
        ("3.141592653589793238", "a 64-bit number keeps only 3.141592653589793"),
        ("1e-400", "a 64-bit number keeps only 0.0"),
        ("1e400", "expected a number from -1.7976931348623157e+308 to 1.7976931348623157e+308"),
        ("-1e99999999999999999999", "expected a number from"),
    ],
)
def test_number_that_64_bits_cannot_hold_is_a_problem_with_its_place(literal: str, words: str) -> None:
    value = read_json(f'{{"a": [1, {{"b/c": {literal}}}], "d": {literal}, "e": true}}'.encode())
    found = problems(value)
    assert [problem.pointer for problem in found] == ["/a/1/b~1c", "/d"]
    assert literal[:100] in found[0].message
    assert words in found[0].message


def test_number_that_64_bits_hold_is_no_problem() -> None:
    literals = ("0", "-0", "-0.0", "0e99999999999999999999", "1.50", "1e3", "1E5", "0.1", "5e-324", "1e23", "2.5e+3")
    for literal in (*literals, "18446744073709551615", "-9223372036854775808", "0.30000000000000004"):
        assert problems(read_json(literal.encode())) == [], literal
    assert not isinstance(parse_float("0.10"), Inexact)


def test_versions_are_those_of_the_workspace() -> None:
    project = tomllib.loads((SDK / "pyproject.toml").read_text())["project"]
    workspace = tomllib.loads((REPOSITORY / "Cargo.toml").read_text())["workspace"]["package"]
    assert project["version"] == aod.__version__ == workspace["version"]
    lock = (REPOSITORY / "Cargo.lock").read_text()
    (minor,) = re.findall(r'name = "jsonschema"\nversion = "(\d+\.\d+)\.', lock)
    (engine,) = (line for line in project["dependencies"] if line.startswith("jsonschema-rs"))
    assert engine.startswith(f"jsonschema-rs~={minor}.")
    assert len(project["dependencies"]) == 2
