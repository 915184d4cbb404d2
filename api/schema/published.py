"""The published v1.36 definitions of the built-in kinds, as they are read from the kubernetes-validate package.

types.py compiles them. Nothing is read at import.
"""

from __future__ import annotations

import functools
import importlib.util
import pathlib
from typing import Any, Final

import orjson

from kubechronicle.api.schema import legacy, own

PACKAGE: Final = "kubernetes_validate"
FILE: Final = ("kubernetes-json-schema", "v1.36.0-local", "_definitions.json")


@functools.cache
def definitions() -> dict[str, Any]:
    """Return the published definitions by name, unchanged, those of former versions, and our own. The first call takes
    10 ms."""
    # Located without importing the package, whose unused validator takes 130 ms at start.
    found = importlib.util.find_spec(PACKAGE)
    if found is None or not found.submodule_search_locations:
        raise ModuleNotFoundError(f"{PACKAGE} is not installed")
    path = pathlib.Path(found.submodule_search_locations[0]).joinpath(*FILE)
    loaded: dict[str, Any] = orjson.loads(path.read_bytes())["$defs"]
    return loaded | legacy.definitions(loaded) | own.DEFINITIONS
