"""ConfigMap: texts and bytes by key. A Secret shares its rules for keys, sizes and immutability.

Source: Kubernetes' ``registry/core/configmap``, ``apis/core`` and ``pkg/printers/internalversion``.

Secret: confidential bytes by key, and the keys that its type requires.

Source: Kubernetes' ``registry/core/secret``, ``apis/core`` and ``pkg/printers/internalversion``.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any, Final

from kubechronicle.api.builtin.common.cell_text import Since
from kubechronicle.api.builtin.common.checks import immutable
from kubechronicle.api.builtin.common.kind import BuiltinKind
from kubechronicle.api.builtin.common.printer import AGE, NAME, Printer, age_of, field_column, name_of
from kubechronicle.api.codecs.errors import DecodeError
from kubechronicle.api.codecs.json import decode_value
from kubechronicle.api.errors.field_errors import Cause, forbidden, invalid_value, required, too_long
from kubechronicle.api.schema.values import encode_bytes, json_word
from kubechronicle.api.strategy.strategy import Strategy, keep
from kubechronicle.api.values import names
from kubechronicle.api.values.certificates import pair_problem
from kubechronicle.api.values.objects import Object, ReadOnlyObject

MAX_DATA: Final = 1024 * 1024
"""Largest total size of a ConfigMap's or Secret's values, in bytes."""

IMMUTABLE_SET: Final = "field is immutable when `immutable` is set"


def sealed_update(new: Object, old: Object, *fields: str) -> list[Cause]:
    """Reject changes of the data and of the mark of a ConfigMap or Secret marked ``immutable``."""
    if not old.get("immutable"):
        return []
    causes = [] if new.get("immutable") else [forbidden("immutable", IMMUTABLE_SET)]
    return causes + [forbidden(field, IMMUTABLE_SET) for field in fields if new.get(field) != old.get(field)]


def base64_length(text: str) -> int:
    return len(text) * 3 // 4 - text[-2:].count("=")


def validate_config_map(obj: Object) -> list[Cause]:
    """Check keys and total size, and that no key is in both maps."""
    causes: list[Cause] = []
    data, binary = obj.get("data") or {}, obj.get("binaryData") or {}
    size = 0
    for key, value in data.items():
        if problems := names.config_key(key):
            causes += [invalid_value(f"data[{key}]", key, problem) for problem in problems]
        if key in binary:
            causes.append(invalid_value(f"data[{key}]", key, "duplicate of key present in binaryData"))
        size += len(value) if value.isascii() else len(value.encode())
    for key, value in binary.items():
        causes += [invalid_value(f"binaryData[{key}]", key, problem) for problem in names.config_key(key)]
        size += base64_length(value)
    if size > MAX_DATA:
        causes.append(too_long("[]", MAX_DATA))
    return causes


def validate_config_map_update(new: Object, old: Object) -> list[Cause]:
    """Reject changes of an immutable ConfigMap."""
    return sealed_update(new, old, "data", "binaryData")


def _cells(obj: ReadOnlyObject, since: Since) -> list[Any]:
    return [name_of(obj), len(obj.get("data") or ()) + len(obj.get("binaryData") or ()), age_of(obj, since)]


CONFIGMAP: Final = BuiltinKind(
    resource="configmaps",
    strategy=Strategy(
        status=False,
        empties=("binaryData",),  # data is never nil: it defaults to an empty map
        validate=validate_config_map,
        validate_update=validate_config_map_update,
    ),
    printer=Printer((NAME, field_column("Data", "core.v1.ConfigMap.data"), AGE), _cells),
)


def default_secret(obj: Object) -> None:
    """Write stringData over data, and remove it."""
    texts = obj.pop("stringData", None)
    if texts:
        data = obj.setdefault("data", {})
        for key, text in texts.items():
            data[key] = encode_bytes(text)


def keep_secret_type(new: Object, old: Object) -> None:
    """Keep the old type if the new Secret names none."""
    if not new.get("type"):
        keep("type", new, old)


_SECRET_KEYS: Final[Mapping[str, tuple[str, ...]]] = {
    "kubernetes.io/dockercfg": (".dockercfg",),
    "kubernetes.io/dockerconfigjson": (".dockerconfigjson",),
    "kubernetes.io/ssh-auth": ("ssh-privatekey",),
    "kubernetes.io/tls": ("tls.crt", "tls.key"),
}
"""Type of a Secret -> required keys."""

_DOCKER: Final = ("kubernetes.io/dockercfg", "kubernetes.io/dockerconfigjson")


def _docker_problem(encoded: str) -> str:
    """Return the problem of a registry configuration in Go's words, or ""."""
    try:
        value, _ = decode_value(base64.b64decode(encoded))
    except DecodeError as error:
        return str(error)
    if value is None or isinstance(value, dict):
        return ""
    return f"json: cannot unmarshal {json_word(value)} into Go value of type map[string]interface {{}}"


def validate_secret(obj: Object) -> list[Cause]:
    """Check keys, total size, and the keys that the type requires."""
    causes: list[Cause] = []
    data = obj.get("data") or {}
    size = 0
    for key, value in data.items():
        causes += [invalid_value(f"data[{key}]", key, problem) for problem in names.config_key(key)]
        size += base64_length(value)
    if size > MAX_DATA:
        causes.append(too_long("data", MAX_DATA))
    kind = obj.get("type", "")
    causes += [required(f"data[{key}]") for key in _SECRET_KEYS.get(kind, ()) if key not in data]
    if kind == "kubernetes.io/ssh-auth" and data.get("ssh-privatekey") == "":
        causes.append(required("data[ssh-privatekey]"))
    if kind in _DOCKER and _SECRET_KEYS[kind][0] in data:
        problem = _docker_problem(data[_SECRET_KEYS[kind][0]])
        if problem:
            causes.append(invalid_value(f"data[{_SECRET_KEYS[kind][0]}]", "<secret contents redacted>", problem))
    if kind == "kubernetes.io/service-account-token":
        field = "metadata.annotations[kubernetes.io/service-account.name]"
        if not (obj["metadata"].get("annotations") or {}).get("kubernetes.io/service-account.name"):
            causes.append(required(field))
    elif kind == "kubernetes.io/basic-auth" and not {"username", "password"} & data.keys():
        causes.append(required("data[username]"))
        causes.append(required("data[password]"))
    return causes


def validate_secret_update(new: Object, old: Object) -> list[Cause]:
    """Reject a changed type, and changes of an immutable Secret."""
    return immutable("type", new.get("type", ""), old.get("type", "")) + sealed_update(new, old, "data")


def secret_warnings(new: Object, old: Object | None) -> list[str]:
    """Return a warning if a server cannot use the certificate and the key of a TLS Secret together."""
    if new.get("type") != "kubernetes.io/tls":
        return []
    data = new.get("data") or {}
    problem = pair_problem(data.get("tls.crt", ""), data.get("tls.key", ""))
    return [problem] if problem else []


def _secret_cells(obj: ReadOnlyObject, since: Since) -> list[Any]:
    return [name_of(obj), obj.get("type") or "", len(obj.get("data") or ()), age_of(obj, since)]


SECRET: Final = BuiltinKind(
    resource="secrets",
    strategy=Strategy(
        status=False,
        empties=("data",),
        prepare_update=keep_secret_type,
        validate=validate_secret,
        validate_update=validate_secret_update,
        warnings=secret_warnings,
    ),
    default_values={"core.v1.Secret": {"type": "Opaque"}},
    default_functions={"core.v1.Secret": default_secret},
    printer=Printer(
        (NAME, field_column("Type", "core.v1.Secret.type"), field_column("Data", "core.v1.Secret.data"), AGE),
        _secret_cells,
    ),
)

KINDS: Final = (
    CONFIGMAP,
    SECRET,
)
