"""Runs capsules one after the other: each answer is the input of the next."""

import json
import os

import requests

ORCHESTRATOR = os.environ.get("ORCHESTRATOR_URL", "http://host.docker.internal:8000")


def execute(inputs: dict) -> dict:
    requests.get(f"{ORCHESTRATOR}/health", timeout=5).raise_for_status()
    data, results = inputs.get("initial_input") or {}, []
    for index, step in enumerate(json.loads(inputs["workflow"])["steps"]):
        body = {"capsule": step["capsule"], "input": data}
        answer = requests.post(f"{ORCHESTRATOR}/execute", json=body, timeout=3600).json()
        results.append({"step_index": index, "capsule": step["capsule"], "success": answer["success"]})
        if not answer["success"]:
            results[-1]["error"] = answer["error"]
            return {"success": False, "final_output": None, "steps_executed": index + 1,
                    "step_results": results, "error": f"step {index} failed: {answer['error']}"}
        data = results[-1]["output"] = answer["output"]
    return {"success": True, "final_output": data, "steps_executed": len(results), "step_results": results}
