"""Custom resources for the tests with real clients: definitions from files, and the requests that every test needs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml
from harness import PATIENCE, Api, eventually

FOLDER = Path(__file__).resolve().parent / "definitions"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


def load(name: str) -> Any:
    """Return the definition in a file of definitions/."""
    return yaml.safe_load((FOLDER / name).read_text())


def is_true(obj: Any, condition: str) -> bool:
    conditions = obj.get("status", {}).get("conditions") or ()
    return any((one["type"], one["status"]) == (condition, "True") for one in conditions)


def define(api: Api, definition: Any, *, timeout: float = PATIENCE) -> str:
    """Create the definition and wait until it is established. Return its name."""
    name = str(api.create(CRDS, definition)["metadata"]["name"])
    eventually(lambda: is_true(api.get(f"{CRDS}/{name}"), "Established"), f"{name} is established", timeout=timeout)
    return name


def undefine(api: Api, name: str, *, timeout: float = PATIENCE) -> None:
    """Delete the definition with its objects. Wait until it is gone."""
    api.request("DELETE", f"{CRDS}/{name}").expect(200, 404)
    eventually(lambda: api.request("GET", f"{CRDS}/{name}").status == 404, f"{name} is gone", timeout=timeout)


def merge(api: Api, path: str, change: Any) -> Any:
    """Send a merge patch. Return the object."""
    return api.request("PATCH", path, change, headers={"Content-Type": "application/merge-patch+json"}).expect(200)
