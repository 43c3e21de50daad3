"""Runs capsules one after the other: each answer is the input of the next, through a translator if the step has one."""

import json
import os
from pathlib import Path

import requests

ORCHESTRATOR = os.environ.get("ORCHESTRATOR_URL", "http://host.docker.internal:8000")


def call(capsule, given):
    body = {"capsule": capsule, "input": given}
    return requests.post(f"{ORCHESTRATOR}/execute", json=body, timeout=3600).json()


def take(step, data):
    if step.get("translator"):
        advice = step["translator_instructions"]
        given = {"source_output": data, **{name: value for name, value in advice.items() if value is not None}}
        answer = call(step["translator"], given)
        if not answer["success"]:
            return answer
        data = answer["output"]
    return call(step["capsule"], data)


def execute(inputs: dict) -> dict:
    requests.get(f"{ORCHESTRATOR}/health", timeout=5).raise_for_status()
    text = inputs.get("workflow") or (Path("/io/input") / inputs["workflow_file"]).read_text()
    data, results = inputs.get("initial_input") or {}, []
    for index, step in enumerate(json.loads(text)["steps"]):
        answer = take(step, data)
        results.append({"step_index": index, "capsule": step["capsule"], "success": answer["success"]})
        if not answer["success"]:
            results[-1]["error"] = answer["error"]
            return {"success": False, "final_output": None, "steps_executed": index + 1,
                    "step_results": results, "error": f"step {index} failed: {answer['error']}"}
        data = results[-1]["output"] = answer["output"]
    return {"success": True, "final_output": data, "steps_executed": len(results), "step_results": results}
