"""Where the files of a call go, and how its answer names them there."""

from pathlib import PurePath


def places(index, files):
    """For each file of an answer: its text there, its path, and its name among the outputs.

    `files` maps the callee's names to paths; `index` is the entry's, which keeps files of one name apart.
    """
    found = []
    for name, path in files.items():
        # The answer names it as it is called here, which may be another name in a directory of the same depth.
        text = "/".join(path.parts[-len(PurePath(name).parts) :])
        found.append((text, path, f"{index:04}/{name}"))
    return found


def renamed(value, names):
    """The same JSON value, with every text that is a key of `names` replaced by what stands there."""
    if isinstance(value, str):
        return names.get(value, value)
    if isinstance(value, list):
        return [renamed(item, names) for item in value]
    if isinstance(value, dict):
        return {key: renamed(item, names) for key, item in value.items()}
    return value
