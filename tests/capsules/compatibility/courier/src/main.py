"""Hands a file to another capsule and returns its result, with the standard library only."""

import json
import os
import shutil
from pathlib import Path
from urllib.request import Request, urlopen

IO = Path("/io")
ORCHESTRATOR = os.environ["ORCHESTRATOR_URL"]


def execute(inputs: dict) -> dict:
    name = os.path.basename(inputs["file"])
    shutil.copy(IO / "input" / name, IO / "handoff" / "outgoing" / name)
    with urlopen(f"{ORCHESTRATOR}/capsules/{inputs['target']}/schema") as reply:
        wanted = sorted(json.load(reply)["input"]["properties"])

    body = {"target": inputs["target"], "args": {"file": name}}
    if inputs.get("session_id"):
        body["session_id"] = inputs["session_id"]
    request = Request(f"{ORCHESTRATOR}/handoff", json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urlopen(request, timeout=3600) as reply:
        answer = json.load(reply)

    incoming = IO / "handoff" / "incoming"
    returned = sorted(entry.name for entry in incoming.iterdir())
    for entry in returned:
        shutil.copy(incoming / entry, IO / "output" / entry)
    return {"answer": answer, "wanted": wanted, "returned": returned}
