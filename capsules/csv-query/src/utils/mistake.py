"""What is wrong with a query or a table, and where."""

import json


class Mistake(Exception):
    """The caller has to mend it; `detail` says where in the query it is, if that is known."""

    def __init__(self, code, message, detail=None):
        super().__init__(message)
        self.code = code
        self.detail = detail or {}


def of_query(error, sql, prefix_bytes):
    """The Mistake for what DuckDB said of `sql`, which stood behind so many bytes of ours."""
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
    """Line and column, both counted from 1, of the byte `position`; one behind the end is the end."""
    before = sql.encode()[:position].decode(errors="ignore")
    return before.count("\n") + 1, len(before) - (before.rfind("\n") + 1) + 1
