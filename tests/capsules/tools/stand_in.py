"""What all stand-ins share: reading flags and the prompt, and following its lines."""

import json
import os
import pathlib
import sys

PREFIX = "AOD-STAND-IN: "
INPUT, CACHED, OUTPUT = 100, 40, 10
ERROR = "the stand-in failed as the prompt says"


class UnknownFlag(Exception):
    """A flag that the real tool does not have."""


class InvalidValue(Exception):
    """A value that a flag of the real tool does not take."""


class Flags:
    """The flags of a tool: `known` maps each to its values, to None for any value, or to () for no value."""

    def __init__(self, arguments, known):
        self.given, self.rest = {}, []
        arguments = list(arguments)
        while arguments:
            argument = arguments.pop(0)
            if argument == "--":
                self.rest += arguments
                return
            if argument == "-" or not argument.startswith("-"):
                self.rest.append(argument)
                continue
            name, equals, value = argument.partition("=")
            if name not in known or (known[name] == () and equals):
                raise UnknownFlag(name)
            if known[name] == ():
                value = True
            elif not equals:
                if not arguments:
                    raise InvalidValue(name)
                value = arguments.pop(0)
            if known[name] and value not in known[name]:
                raise InvalidValue(name)
            self.given.setdefault(name, []).append(value)

    def get(self, name, default=None):
        return self.given.get(name, [default])[-1]


class Turn:
    """What the lines of a prompt ask for; the files are written."""

    def __init__(self, tool, prompt):
        answers = []
        self.fails = self.is_cut_short = False
        for line in prompt.decode("utf-8", "replace").splitlines():
            if not line.startswith(PREFIX):
                continue
            action, _, rest = line[len(PREFIX) :].partition(" ")
            if action == "answer":
                answers.append(rest)
            elif action == "write":
                path, _, content = rest.partition(" ")
                pathlib.Path(path).parent.mkdir(parents=True, exist_ok=True)
                pathlib.Path(path).write_text(content + "\n", encoding="utf-8")
            elif action == "fail":
                self.fails = True
            elif (action, rest) == ("cut", "short"):
                self.is_cut_short = True
            else:
                sys.exit(f"the stand-in does not know the line {line!r}")
        self.text = "\n".join(answers) or f"stand-in for {tool}: prompt of {len(prompt)} bytes"


def stdin():
    return sys.stdin.buffer.read()


def variable(name, problem):
    """The value of a variable; without one, the tool ends with `problem`."""
    value = os.environ.get(name)
    if not value:
        end(1, problem)
    return value


def line(**event):
    """Prints an event as one line of JSON."""
    print(json.dumps(event, separators=(",", ":"), ensure_ascii=False), flush=True)


def end(code, message=""):
    """Ends the tool with a message on stderr."""
    if message:
        print(message, file=sys.stderr)
    sys.exit(code)
