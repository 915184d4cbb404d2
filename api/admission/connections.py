"""The options of connections to pods, services and nodes, which webhooks and policies see as objects, and may change.

Clients send them as query parameters, so that OpenAPI has no definitions of them, and they have no metadata.

Source: k8s.io/api ``core/v1/types.go`` (PodExecOptions and its neighbours).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from kubechronicle.api.errors import status
from kubechronicle.api.schema.values import json_word
from kubechronicle.api.values.objects import Object

_STREAMS: Final = {"stdin": "bool", "stdout": "bool", "stderr": "bool", "tty": "bool", "container": "string"}
_PATH: Final = {"path": "string"}

FIELDS: Final[Mapping[str, Mapping[str, str]]] = {
    "PodExecOptions": {**_STREAMS, "command": "[]string"},
    "PodAttachOptions": _STREAMS,
    "PodPortForwardOptions": {"ports": "[]int32"},
    "PodProxyOptions": _PATH,
    "ServiceProxyOptions": _PATH,
    "NodeProxyOptions": _PATH,
}
"""Kind of options -> field -> its type in Go."""

_TYPES: Final[Mapping[str, type]] = {"bool": bool, "string": str, "int32": int}
_INT32: Final = range(-(2**31), 2**31)


def decoded_options(kind: str, obj: Object) -> Object:
    """Return patched options without unknown and null fields. StatusError 500: a field has another type."""
    found: Object = {"kind": kind, "apiVersion": "v1"}
    for name, go_type in FIELDS[kind].items():
        value = obj.get(name)
        if value is None:
            continue
        if go_type.startswith("[]"):
            if not isinstance(value, list):
                raise _mismatch(value, kind, name, go_type)
            for each in value:
                _check(each, kind, name, go_type[2:])
        else:
            _check(value, kind, name, go_type)
        found[name] = value
    return found


def _check(value: Any, kind: str, name: str, go_type: str) -> None:
    if type(value) is not _TYPES[go_type] or (go_type == "int32" and value not in _INT32):
        raise _mismatch(value, kind, name, go_type)


def _mismatch(value: Any, kind: str, name: str, go_type: str) -> status.StatusError:
    return status.internal_error(
        f"json: cannot unmarshal {json_word(value)} into Go struct field {kind}.{name} of type {go_type}"
    )
