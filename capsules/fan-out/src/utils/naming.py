"""The output names of a call's files."""

from pathlib import PurePath


def places(index, files):
    """For each file of an answer: its text in the answer, its path, and its output name.

    `files` maps the callee's names to paths; `index` of the entry distinguishes equal names.
    """
    found = []
    for name, path in files.items():
        # The answer has the name in this container, which may differ at the same depth.
        text = "/".join(path.parts[-len(PurePath(name).parts) :])
        found.append((text, path, f"{index:04}/{name}"))
    return found


def renamed(value, names):
    """The same JSON value, with every text that is a key of `names` replaced by its value."""
    if isinstance(value, str):
        return names.get(value, value)
    if isinstance(value, list):
        return [renamed(item, names) for item in value]
    if isinstance(value, dict):
        return {key: renamed(item, names) for key, item in value.items()}
    return value
