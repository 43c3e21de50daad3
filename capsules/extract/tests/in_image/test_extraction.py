"""`execute` with a double of the model: its requests, its answers, and the corrections."""

import json
import tempfile
import unittest
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

from aod import CapsuleError, Context

from src import main
from src.utils.relaxed import SchemaUnfit
from src.utils.wanted import Wanted

PERSON = {
    "type": "object",
    "required": ["name"],
    "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
}
COMPANY = {
    "type": "object",
    "required": ["firm"],
    "properties": {"firm": {"type": "string"}, "city": {"type": "string"}},
}


class Findings(unittest.TestCase):
    def check(self, schema, data, expected, missing, is_complete):
        found = Wanted(schema).found(data)
        self.assertEqual((found.data, found.missing, found.is_complete), (expected, missing, is_complete))
        self.assertEqual(found.problems, [])

    def test_nulls_that_the_schema_does_not_take_are_left_out(self):
        self.check(PERSON, {"name": "Ada", "age": None}, {"name": "Ada"}, ["/age"], True)

    def test_nulls_that_the_schema_takes_stay(self):
        schema = {"type": "object", "properties": {"a": {"type": ["string", "null"]}, "b/c": {}}}
        self.check(schema, {"a": None, "b/c": None}, {"a": None, "b/c": None}, ["/a", "/b~1c"], True)

    def test_missing_required_values_are_null(self):
        self.check(PERSON, {"name": None, "age": 3}, {"name": None, "age": 3}, ["/name"], False)
        people = {"type": "array", "items": PERSON}
        self.check(people, [{"name": None, "age": None}], [{"name": None}], ["/0/name", "/0/age"], False)

    def test_among_several_schemas_all_nulls_go_together(self):
        schema = {"properties": {"p": {"anyOf": [{"type": "null"}, {**PERSON, "required": []}]}}}
        self.check(schema, {"p": {"name": None, "age": None}}, {"p": {}}, ["/p/name", "/p/age"], True)

    def test_no_schema_of_several_fits_without_a_required_value(self):
        schema = {"anyOf": [PERSON, {"type": "string"}]}
        self.check(schema, {"name": None, "age": 3}, {"name": None, "age": 3}, ["/name"], False)

    def test_problems_name_their_place(self):
        found = Wanted({"oneOf": [PERSON, COMPANY]}).found({"name": "Ada", "firm": "Lumen"})
        self.assertEqual(len(found.problems), 1)
        self.assertTrue(found.problems[0].startswith("top level: "), found.problems)
        found = Wanted({"properties": {"p": {"minProperties": 2}}}).found({"p": {"a": 1}})
        self.assertTrue(found.problems[0].startswith("/p: "), found.problems)

    def test_schemas_that_cannot_be_used(self):
        for schema, words in [
            ([], "not a JSON object"),
            ({"type": "word"}, "/type: "),
            ({"$ref": "https://example.com/schema.json"}, "/$ref: "),
            ({"$ref": "#/$defs/none"}, "/$ref: "),
            ({"items": {"$ref": "#"}}, "refers to itself"),
        ]:
            with self.assertRaises(SchemaUnfit) as refused:
                Wanted(schema)
            self.assertIn(words, str(refused.exception))


class Extraction(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.io = Path(directory.name)
        (self.io / "input").mkdir()
        (self.io / "input/a.txt").write_text("Ada works for Lumen.")
        self.asked, self.answers = [], []
        for patch in (
            mock.patch.dict("os.environ", {"AOD_IO": directory.name}),
            mock.patch.object(Context, "log"),
            mock.patch.object(Context, "agent", lambda _: SimpleNamespace(run=self.run_agent)),
        ):
            patch.start()
            self.addCleanup(patch.stop)

    def run_agent(self, *, inputs, output_schema):
        self.asked.append(inputs)
        return SimpleNamespace(output={"data": self.answers.pop(0)})

    def execute(self, **inputs):
        return main.execute({"document": "a.txt", **inputs}, Context())

    def refused(self, code, **inputs):
        with self.assertRaises(CapsuleError) as refused:
            self.execute(**inputs)
        self.assertEqual(refused.exception.code, code)
        return str(refused.exception)

    def test_what_is_found_is_answered_and_written(self):
        self.answers = [{"name": "Ada", "age": None}]
        answer = self.execute(schema=PERSON, instructions="First names.")
        self.assertEqual(self.asked, [{"text": "Ada works for Lumen.", "instructions": "First names.", "problems": []}])
        self.assertEqual((answer["data"], answer["missing"], answer["is_complete"]), ({"name": "Ada"}, ["/age"], True))
        self.assertEqual(json.loads(answer["data_file"].read_text()), {"name": "Ada"})

    def test_what_does_not_fit_goes_back_to_the_model(self):
        both = {"name": "Ada", "age": 36, "firm": "Lumen", "city": "Ellis"}
        self.answers = [both, {"firm": "Lumen", "city": None}]
        answer = self.execute(schema={"oneOf": [PERSON, COMPANY]})
        self.assertEqual(answer["data"], {"firm": "Lumen"})
        self.assertEqual([len(asked["problems"]) for asked in self.asked], [0, 1])
        self.answers = [both] * main.ROUNDS_MAX
        self.assertIn(
            f"after {main.ROUNDS_MAX} rounds", self.refused("data_unfit", schema={"oneOf": [PERSON, COMPANY]})
        )

    def test_the_schema_may_be_a_file(self):
        (self.io / "input/schema.json").write_text(json.dumps(PERSON))
        self.answers = [{"name": "Ada", "age": None}]
        self.assertEqual(self.execute(schema_file="schema.json")["data"], {"name": "Ada"})
        (self.io / "input/schema.json").write_text("{")
        self.assertIn("'schema.json' is not JSON", self.refused("schema_unfit", schema_file="schema.json"))

    def test_what_is_refused_costs_nothing(self):
        self.refused("schema_unfit", schema={"type": "word"})
        with mock.patch.object(main, "DOCUMENT_CHARACTERS_MAX", 9):
            self.assertIn("'a.txt' has 20 characters", self.refused("document_too_long", schema=PERSON))
        (self.io / "input/a.txt").write_text(" ")
        self.refused("document_without_text", schema=PERSON)
        self.assertEqual(self.asked, [])


if __name__ == "__main__":
    unittest.main()
