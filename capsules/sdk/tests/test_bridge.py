"""run.py as a process without a container: its input, output, and exit code."""

from __future__ import annotations

import json
import signal
from typing import Any

import pytest

from conftest import FILE, Capsule
from orchestrator import Orchestrator

PLAIN = "def execute(inputs):\n    return "
PAIR = {"input": {"properties": {"f": FILE, "n": {"type": "integer", "default": 7}}}, "output": {}}


def test_inputs_go_in_with_defaults_and_bare_names(capsule: Capsule) -> None:
    ended = capsule.run(PLAIN + "{'got': inputs}", PAIR, {"f": "/io/input/a.txt"}, {"a.txt": "x"})
    assert (ended.exit_code, ended.output) == (0, {"got": {"f": "a.txt", "n": 7}})
    assert ended.stderr == ""


@pytest.mark.parametrize(
    "main",
    [
        "async def execute(inputs):\n    return {'ok': 1}",
        "async def execute(inputs, ctx):\n    return {'ok': ctx.attempt}",
        "def execute(inputs, ctx):\n    return {'ok': ctx.attempt}",
        "class Work:\n    def __call__(self, inputs):\n        return {'ok': 1}\nexecute = Work()",
        (
            "import functools\ndef both(inputs, ctx):\n    return {'ok': ctx.attempt}\n"
            "@functools.wraps(both)\ndef execute(*args):\n    return both(*args)"
        ),
    ],
)
def test_execute_takes_what_it_names_and_may_be_asynchronous(capsule: Capsule, main: str) -> None:
    ended = capsule.run(main)
    assert (ended.exit_code, ended.output) == (0, {"ok": 1}), ended.stderr


def test_modules_beside_main_are_found(capsule: Capsule) -> None:
    capsule.write("from src.utils.words import WORD\ndef execute(inputs):\n    return {'word': WORD}")
    (capsule.directory / "src" / "utils").mkdir()
    (capsule.directory / "src" / "utils" / "words.py").write_text("WORD = 'hello'\n")
    ended = capsule.ended(capsule.start())
    assert ended.output == {"word": "hello"}, ended.stderr


def problems_of(output: Any) -> list[tuple[str, str]]:
    return sorted((item["pointer"], item["code"]) for item in output["error"]["detail"]["problems"])


def test_an_unfit_input_ends_with_2_and_all_its_problems(capsule: Capsule) -> None:
    schema = {"input": {"required": ["r"], "properties": {"n": {"type": "integer"}, "f": FILE}}, "output": {}}
    ended = capsule.run("raise SystemError('never imported')", schema, {"n": "x"})
    assert (ended.exit_code, ended.output["error"]["code"]) == (2, "input_invalid")
    assert problems_of(ended.output) == [("", "does_not_fit"), ("/n", "does_not_fit")]
    assert "must" not in ended.stderr
    assert "Traceback" not in ended.stderr


def test_a_missing_input_file_ends_with_2(capsule: Capsule) -> None:
    ended = capsule.run(PLAIN + "{}", PAIR, {"f": "gone.txt"})
    assert (ended.exit_code, problems_of(ended.output)) == (2, [("/f", "file_missing")])


@pytest.mark.parametrize("payload", ["", "{", '{"n": NaN}', "[" * 5000])
def test_an_input_that_is_no_json_ends_with_2(capsule: Capsule, payload: str) -> None:
    capsule.write(PLAIN + "{}")
    (capsule.io / "input.json").write_text(payload)
    ended = capsule.ended(capsule.start())
    assert (ended.exit_code, ended.output["error"]["code"]) == (2, "input_malformed")


def test_the_answer_may_hold_paths_and_becomes_bare_names(capsule: Capsule) -> None:
    main = (
        "def execute(inputs, ctx):\n"
        "    report = ctx.output_file('sub/report.pdf')\n"
        "    report.write_text('x')\n"
        "    return {'r': report, 'again': '/io/output/sub/report.pdf', 'pair': (1, 2.5)}"
    )
    schema = {"input": {}, "output": {"properties": {"r": FILE, "again": FILE}}}
    ended = capsule.run(main, schema)
    assert (ended.exit_code, ended.stderr) == (0, "")
    assert ended.output == {"r": "sub/report.pdf", "again": "sub/report.pdf", "pair": [1, 2.5]}


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        ("None", "output_invalid"),
        ("[]", "output_invalid"),
        ("{'n': 'x'}", "output_invalid"),
        ("{'f': 'gone.pdf'}", "output_file_missing"),
        ("{'f': '/io/input/a.txt'}", "output_invalid"),
        ("{'x': float('nan')}", "output_malformed"),
        ("{'x': object()}", "output_malformed"),
        ("{'x': chr(0xd800)}", "output_malformed"),
        ("{'x': b'bytes'}", "output_malformed"),
        ("{'x': 'y' * 70_000}", "output_invalid"),
        ("{'x': [2**64]}", "output_invalid"),
        ("{'x': __import__('pathlib').Path('/etc/passwd')}", "output_malformed"),
    ],
)
def test_an_unfit_answer_ends_with_3(capsule: Capsule, answer: str, code: str) -> None:
    schema = {"input": {}, "output": {"properties": {"n": {"type": "integer"}, "f": FILE}}}
    ended = capsule.run(PLAIN + answer, schema)
    assert (ended.exit_code, ended.output["error"]["code"]) == (3, code)


def test_a_link_in_the_output_is_no_file(capsule: Capsule) -> None:
    main = (
        "def execute(inputs, ctx):\n"
        "    ctx.output_file('l').symlink_to('/etc/passwd')\n"
        "    ctx.output_file('d').symlink_to('/etc')\n"
        "    return {'f': 'l', 'g': 'd/passwd'}"
    )
    ended = capsule.run(main, {"input": {}, "output": {"properties": {"f": FILE, "g": FILE}}})
    assert problems_of(ended.output) == [("/f", "file_missing"), ("/g", "file_missing")]


def test_an_error_of_the_author_ends_with_1_and_is_passed_on(capsule: Capsule) -> None:
    main = (
        "import aod\ndef execute(inputs):\n"
        "    raise aod.CapsuleError('no_rows', 'the table has no rows', detail={'rows': 0}, retryable=True)"
    )
    ended = capsule.run(main)
    assert ended.exit_code == 1
    error = {"code": "no_rows", "message": "the table has no rows", "detail": {"rows": 0}, "retryable": True}
    assert ended.output == {"error": error}
    (line,) = ended.log
    assert (line["level"], line["fields"]["code"]) == ("error", "no_rows")
    assert "main.py:" in line["fields"]["place"]
    assert "exception" not in line["fields"]


@pytest.mark.parametrize(
    ("raised", "exit_code", "code"),
    [
        ("aod.LimitExceeded('turns', '20 turns')", 5, "turns"),
        ("aod.ModelError('overloaded', 'nobody answers')", 6, "overloaded"),
        ("aod.HandoffUnavailable('b', 'log_full', 'no room')", 4, "log_full"),
        ("ExceptionGroup('g', [aod.HandoffUnavailable('b', 'log_full', 'no room')])", 4, "log_full"),
        ("ZeroDivisionError('x' * 9000)", 70, "exception"),
    ],
)
def test_each_kind_of_failure_has_its_exit_code(capsule: Capsule, raised: str, exit_code: int, code: str) -> None:
    ended = capsule.run(f"import aod\ndef execute(inputs):\n    raise {raised}")
    assert (ended.exit_code, ended.output["error"]["code"]) == (exit_code, code)
    assert len(ended.output["error"]["message"]) <= 4000


def test_a_failing_import_and_a_wrong_directory_are_told(capsule: Capsule) -> None:
    ended = capsule.run("import nothing_of_this_name")
    assert (ended.exit_code, ended.output["error"]["code"]) == (70, "exception")
    assert "nothing_of_this_name" in ended.output["error"]["message"]
    for main, schema, word in (("x = 1", None, "execute(inputs)"), (None, None, "src/main.py"), ("", "{}", "input")):
        path = capsule.directory / "src" / "main.py"
        path.unlink(missing_ok=True)
        if main is not None:
            path.write_text(main)
        if schema:
            (capsule.directory / "schema.json").write_text(schema)
        ended = capsule.ended(capsule.start())
        assert (ended.exit_code, ended.output["error"]["code"]) == (70, "capsule_invalid")
        assert word in ended.output["error"]["message"]


def test_details_stay_within_what_is_kept(capsule: Capsule) -> None:
    schema = {"input": {"additionalProperties": {"type": "string"}}, "output": {}}
    ended = capsule.run(PLAIN + "{}", schema, {f"key{number}": number for number in range(400)})
    detail = ended.output["error"]["detail"]
    assert 10 < len(detail["problems"]) < 300
    assert len(json.dumps(detail)) <= 12_000


def test_sigterm_cancels_the_calls_and_ends_with_143(capsule: Capsule, orchestrator: Orchestrator) -> None:
    orchestrator.on_call = None
    capsule.environment |= {"AOD_URL": orchestrator.url, "AOD_RUN_ID": "run_x"}
    capsule.write("def execute(inputs, ctx):\n    ctx.start('a', {})\n    ctx.call('b', {'n': 1})")
    process = capsule.start()
    orchestrator.wait_until(lambda: orchestrator.waiting == 2)
    process.send_signal(signal.SIGTERM)
    ended = capsule.ended(process)
    assert (ended.exit_code, ended.output) == (143, None)
    assert ended.log[-1]["message"] == "stopped by SIGTERM"
    assert sorted(path for _, path, _ in orchestrator.requests if "cancel" in path) == [
        "/handoffs/run_0/cancel",
        "/handoffs/run_1/cancel",
    ]


def test_sigterm_ends_what_is_no_call(capsule: Capsule) -> None:
    capsule.write("import time\ndef execute(inputs):\n    print('{\"here\": 1}', flush=True)\n    time.sleep(60)")
    process = capsule.start()
    assert process.stdout is not None
    assert process.stdout.readline() == '{"here": 1}\n'
    process.send_signal(signal.SIGTERM)
    assert capsule.ended(process).exit_code == 143


def test_an_answer_with_numbers_beyond_64_bits_ends_with_their_places(capsule: Capsule) -> None:
    ended = capsule.run(PLAIN + "{'a': [1, 2**64], 'b': {'c': -2**63 - 1}, 'd': 2**64 - 1, 'e': 0.1}")
    assert (ended.exit_code, ended.output["error"]["code"]) == (3, "output_invalid")
    assert problems_of(ended.output) == [("/a/1", "number_inexact"), ("/b/c", "number_inexact")]
    assert "18446744073709551616 given; expected an integer from" in ended.output["error"]["message"]


def test_detail_of_an_error_keeps_the_digits_of_its_numbers(capsule: Capsule) -> None:
    ended = capsule.run("import aod\ndef execute(inputs):\n    raise aod.CapsuleError('c', 'm', detail={'n': 2**64})")
    assert ended.output["error"]["detail"] == '{"n": 18446744073709551616}'
