"""Calls another capsule once for each entry of a list, and collects the results.

utils/gather.py makes the parallel calls, utils/naming.py names the files.
"""

import shutil

from aod import CapsuleError, HandoffError

from src.utils.gather import EntryFailed, gather
from src.utils.naming import places, renamed


def execute(inputs, ctx):
    """Calls `target` for each of `entries`, `parallel` concurrently; returns results in their order, with all files."""
    target, common = inputs["target"], inputs["common"]
    # Copied once for all calls; arguments name the files there.
    for name in inputs["files"]:
        shutil.copyfile(ctx.input_file(name), ctx.outgoing_file(name))

    def call(index, entry):
        answer = ctx.call(target, {**common, **entry})
        ctx.log.info(f"entry {index}: {target} answered")
        return kept(ctx, index, answer)

    try:
        cancel = ctx.cancel_calls if inputs["on_failure"] == "fail" else None
        results = gather(inputs["entries"], call, inputs["parallel"], HandoffError, cancel)
    except EntryFailed as end:
        failure = end.failure
        detail = {"entry": end.index, "error": failure.detail}
        raise CapsuleError(failure.code, str(end), detail=detail, retryable=failure.retryable) from failure
    failed = sum(result.failure is not None for result in results)
    return {
        "results": [result.value or failure_of(result.failure) for result in results],
        "succeeded": len(results) - failed,
        "failed": failed,
    }


def kept(ctx, index, answer):
    """The answer as a result, with its files copied to the outputs."""
    names = {}
    for text, path, name in places(index, answer.files):
        shutil.copyfile(path, ctx.output_file(name))
        names[text] = name
    return {"output": renamed(answer.output, names), "files": list(names.values()), "error": None}


def failure_of(failure):
    error = {"code": failure.code, "message": failure.message, "retryable": failure.retryable}
    return {"output": None, "files": [], "error": error}
