"""Shortens texts to their first words, without a model."""

from pathlib import Path

INPUT = Path("/io/input")
OUTPUT = Path("/io/output")


def read(name):
    # Callers send a bare name, a full path, or a path of their own machine.
    path = Path(name)
    return (path if path.is_absolute() and path.exists() else INPUT / path.name).read_text()


def texts_of(inputs):
    if "text" in inputs:
        return [inputs["text"]]
    if "texts" in inputs:
        return inputs["texts"]
    return [read(name) for name in inputs.get("files", [inputs.get("file")])]


def execute(inputs: dict) -> dict:
    words = inputs.get("words") or 5
    digests = [" ".join(text.split()[:words]) for text in texts_of(inputs)]
    (OUTPUT / "digest.txt").write_text("\n".join(digests) + "\n")
    is_single = "text" in inputs or ("texts" not in inputs and "file" in inputs)
    summary = {"summary": digests[0]} if is_single else {"summaries": digests}
    return {"texts": digests, "written": "digest.txt", **summary}
