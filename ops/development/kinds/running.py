"""Write what a running kube-apiserver of a release names into api/kinds/MINOR/server.json: flags, metrics, root paths.

The flags are those of its --help. It runs with an etcd, answers a few requests, and is then asked for /metrics and /.
Metrics of the Go runtime are left out, as there is none here.

    {"flags": {"allow-privileged": "", …}, "metrics": {"apiserver_request_total": "counter", …}, "paths": ["/api", …]}
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from kubechronicle.api import kinds
from kubechronicle.ops.development.differential import reference
from kubechronicle.ops.development.differential.transport import Connection, Target

FILE: Final = "server.json"
REQUESTS: Final = (
    ("POST", "/api/v1/namespaces/default/configmaps", {"metadata": {"name": "a"}}),
    ("GET", "/api/v1/namespaces/default/configmaps", None),
    ("GET", "/openapi/v2", None),
    ("GET", "/openapi/v3", None),
)
"""Requests after which more metrics are there than of an idle server."""
JSON: Final = {"Content-Type": "application/json"}
STABLE: Final = 30.0
"""Seconds without new metrics after which all periodic tasks have run once."""
MOST: Final = 600.0
_FLAG: Final = re.compile(r"^\s+(?:-\w, )?--([\w-]+)(?: (\w+))?", re.M)
_TYPE: Final = re.compile(r"^# TYPE (\w+) (\w+)$", re.M)
_GO: Final = "go_"


def facts(minor: str) -> Mapping[str, Any]:
    """Return the content of server.json of a minor."""
    found: Mapping[str, Any] = json.loads((Path(kinds.__file__).parent / minor / FILE).read_text())
    return found


def names(release: str) -> str:
    """Return the text of server.json. Unavailable: there is no kube-apiserver of this release."""
    program = reference.programs()[0]
    if (found := reference.version_of(program)) != release:
        raise reference.Unavailable(f"kube-apiserver is of {found}, not of {release}; that of kinds.RELEASE is built")
    flags = flags_of(reference.output_of(program, "--help"))
    with reference.reference_server() as target:
        metrics, paths = _ask(target)
    return json.dumps({"flags": flags, "metrics": metrics, "paths": paths}, indent=1, sort_keys=True) + "\n"


def flags_of(text: str) -> dict[str, str]:
    """Return the flags of a help text with their types; "" of a switch."""
    return {name: kind or "" for name, kind in _FLAG.findall(text)}


def metrics_of(text: str) -> dict[str, str]:
    """Return the families of an answer of /metrics with their types."""
    return {name: kind for name, kind in _TYPE.findall(text) if not name.startswith(_GO)}


def _ask(target: Target) -> tuple[Mapping[str, str], list[str]]:
    connection = Connection(target)
    for method, path, body in REQUESTS:
        connection.ask(method, path, None if body is None else json.dumps(body).encode(), JSON)
    metrics: dict[str, str] = {}
    end, until = time.monotonic() + MOST, time.monotonic() + STABLE
    while time.monotonic() < min(end, until):
        found = metrics_of(connection.ask("GET", "/metrics").body.decode())
        if found.keys() - metrics.keys():
            until = time.monotonic() + STABLE
        metrics |= found
        time.sleep(1)
    return metrics, sorted(connection.get_json("/")["paths"])
