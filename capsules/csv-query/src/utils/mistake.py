"""Errors of a query or a table, with their place."""

import json


class Mistake(Exception):
    """An error to be fixed by the caller; `detail` has its place in the query, if known."""

    def __init__(self, code, message, detail=None):
        super().__init__(message)
        self.code = code
        self.detail = detail or {}


def of_query(error, sql, prefix_bytes):
    """The Mistake for DuckDB's error in `sql`, which followed `prefix_bytes` of the surrounding statement."""
    problem = problem_of(error)
    message = problem["exception_message"]
    detail = {"kind": problem.get("exception_type", "")}
    position = int(problem["position"]) - prefix_bytes if "position" in problem else -1
    if position >= 0:
        line, column = place(sql, position)
        detail.update(line=line, column=column)
        message = f"line {line}, column {column}: {message}"
    return Mistake("sql_invalid", message, detail)


def problem_of(error):
    """DuckDB's own description: with `errors_as_json`, JSON follows the name of the kind."""
    kind, _, text = str(error).partition(": ")
    try:
        return {"exception_message": text, **json.loads(text)}
    except (ValueError, TypeError):
        return {"exception_message": text or kind}


def place(sql, position):
    """Line and column of the byte `position`, from 1; a position after the end is the end."""
    before = sql.encode()[:position].decode(errors="ignore")
    return before.count("\n") + 1, len(before) - (before.rfind("\n") + 1) + 1
