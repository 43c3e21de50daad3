"""A caller's schema for a model; needs no library."""

import copy
import json
import re
import unittest

from src.utils.relaxed import SchemaUnfit, answer_schema

NULL = {"type": "null"}


def data_schema(schema):
    """The relaxed form of `schema`."""
    before = copy.deepcopy(schema)
    made = answer_schema(schema)
    assert schema == before, "the caller's schema was changed"
    assert (made["required"], list(made["properties"])) == (["data"], ["data"])
    return made["properties"]["data"]


def property_of(schema, **rest):
    return data_schema({"type": "object", "properties": {"x": schema}, **rest})["properties"]["x"]


class Relaxed(unittest.TestCase):
    def test_each_property_is_asked_for(self):
        schema = {"type": "object", "required": ["b"], "properties": {"a": {"type": "string"}, "b": {"type": "number"}}}
        self.assertEqual(data_schema(schema), {
            "type": "object",
            "required": ["b", "a"],
            "properties": {"a": {"type": ["string", "null"]}, "b": {"type": ["number", "null"]}},
        })  # fmt: skip

    def test_each_property_may_be_null(self):
        pair = {"type": "object", "properties": {"n": {"type": "integer"}}}
        relaxed_pair = {"type": "object", "required": ["n"], "properties": {"n": {"type": ["integer", "null"]}}}
        for schema, expected in [
            ({"type": "string", "minLength": 3}, {"type": ["string", "null"], "minLength": 3}),
            ({"type": ["string", "null"]}, {"type": ["string", "null"]}),
            ({"enum": ["a", "b"]}, {"anyOf": [{"enum": ["a", "b"]}, NULL]}),
            (pair, {"anyOf": [relaxed_pair, NULL]}),
            ({"type": "array", "items": pair}, {"anyOf": [{"type": "array", "items": relaxed_pair}, NULL]}),
            ({"oneOf": [pair, {"type": "string"}]}, {"anyOf": [{"anyOf": [relaxed_pair, {"type": "string"}]}, NULL]}),
            # An unrestricted schema stays; a constant needs no search.
            ({}, {}),
            (True, True),
            ({"const": "invoice"}, {"const": "invoice"}),
        ]:
            self.assertEqual(property_of(schema), expected)

    def test_what_is_a_condition_stays_as_it_is(self):
        condition = {"properties": {"kind": {"const": "a"}}, "required": ["kind"]}
        made = data_schema({"type": "object", "if": condition, "then": {"properties": {"n": {"type": "integer"}}}})
        self.assertEqual(made["if"], condition)
        self.assertEqual(made["then"]["properties"], {"n": {"type": ["integer", "null"]}})

    def test_names_of_files_are_texts_here(self):
        self.assertEqual(property_of({"type": "string", "format": "file_path"}), {"type": ["string", "null"]})
        self.assertEqual(property_of({"type": "string", "format": "date"})["format"], "date")


class References(unittest.TestCase):
    def test_what_is_referred_to_is_put_in_place(self):
        article = {"type": "object", "properties": {"price": {"type": "number"}}, "required": ["price"]}
        made = property_of(
            {"$ref": "#/$defs/article", "description": "The first."},
            **{"$defs": {"article": article}, "$schema": "https://json-schema.org/draft/2020-12/schema"},
        )
        relaxed = {**article, "properties": {"price": {"type": ["number", "null"]}}, "description": "The first."}
        self.assertEqual(made, {"anyOf": [relaxed, NULL]})

    def test_nothing_is_lost_beside_a_reference(self):
        made = data_schema({"$ref": "#/$defs/a", "minProperties": 2, "$defs": {"a": {"type": "object"}}})
        self.assertEqual(made, {"allOf": [{"type": "object"}, {"minProperties": 2}]})

    def test_properties_may_have_the_names_of_keywords(self):
        names = {name: {"type": "string"} for name in ("definitions", "$defs", "$id", "format", "properties", "oneOf")}
        made = data_schema({"type": "object", "properties": names})
        self.assertEqual(sorted(made["properties"]), sorted(names))

    def test_data_of_a_schema_is_no_schema(self):
        schema = {"type": "object", "default": {"$ref": "#/x"}, "enum": [{"properties": {"a": {"type": "string"}}}]}
        self.assertEqual(data_schema(schema), schema)

    def test_no_reference_is_left(self):
        schema = {
            "type": "array",
            "items": {"anyOf": [{"$ref": "#/$defs/a~1b"}, {"$ref": "#/$defs/c/anyOf/1"}]},
            "$defs": {"a/b": {"type": "string"}, "c": {"anyOf": [NULL, {"not": {"$ref": "#/$defs/a~1b"}}]}},
        }
        self.assertNotIn("$ref", json.dumps(data_schema(schema)))

    def test_recursion_is_refused(self):
        for reference, definitions in [
            ("#", {}),
            ("#/$defs/a", {"a": {"items": {"$ref": "#/$defs/b"}}, "b": {"items": {"$ref": "#/$defs/a"}}}),
        ]:
            with self.assertRaisesRegex(SchemaUnfit, re.escape(f"'{reference}' refers to itself")):
                property_of({"$ref": reference}, **{"$defs": definitions})
        with self.assertRaisesRegex(SchemaUnfit, "unsupported reference '#name'"):
            property_of({"$ref": "#name"})


if __name__ == "__main__":
    unittest.main()
