"""Validation of parts of containers: their environment, probes and lifecycle hooks.

Source: Kubernetes' ``apis/core/validation``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from kubechronicle.api.builtin.common.checks import (
    dns_label,
    dns_subdomain,
    no_backsteps,
    not_negative,
    one_of_if_set,
    port_number,
    port_number_or_name,
    qualified_name,
    repeated,
    wrong,
)
from kubechronicle.api.errors.field_errors import Cause, duplicate, forbidden, invalid_value, not_supported, required
from kubechronicle.api.kinds.reading import enum
from kubechronicle.api.values import names, quantity
from kubechronicle.api.values.objects import Object

# -- environment ------------------------------------------------------------------------------------------------------

ENV_FIELDS: Final = (
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
)
"""Fields of a pod that a variable can show."""

_KNOWN_FIELDS: Final = frozenset(
    (
        *ENV_FIELDS,
        "metadata.annotations",
        "metadata.labels",
        "spec.restartPolicy",
        "spec.schedulerName",
        "status.phase",
    )
)
RESOURCE_FIELDS: Final = (
    "limits.cpu",
    "limits.ephemeral-storage",
    "limits.memory",
    "requests.cpu",
    "requests.ephemeral-storage",
    "requests.memory",
)
_HUGE_PAGES: Final = ("limits.hugepages-", "requests.hugepages-")
_BYTES: Final = ("1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei")
_DIVISORS: Final = (
    (("limits.cpu", "requests.cpu"), ("1m", "1"), "1m and 1 are supported with the cpu resource"),
    (("limits.memory", "requests.memory"), _BYTES, f"{', '.join(_BYTES)} are supported with the memory resource"),
    (
        ("limits.ephemeral-storage", "requests.ephemeral-storage"),
        _BYTES,
        f"{', '.join(_BYTES)} are supported with the local ephemeral storage resource",
    ),
    (_HUGE_PAGES, _BYTES, f"{', '.join(_BYTES)} are supported with the hugepages resource"),
)
"""(prefixes of resource fields, allowed units, message)."""

_SUBSCRIPT: Final = re.compile(r"(.*)\['(.*)'\]\Z", re.DOTALL)


def field_reference(reference: Object, fields: Sequence[str], field: str) -> list[Cause]:
    """Check a reference to one of ``fields`` of the pod, or to one label or annotation."""
    version, path = reference.get("apiVersion", ""), reference.get("fieldPath", "")
    if not version:
        return [required(f"{field}.apiVersion")]
    if not path:
        return [required(f"{field}.fieldPath")]
    subscript = _SUBSCRIPT.match(path)
    base = subscript[1] if subscript else path
    if version != "v1":
        detail = f"error converting fieldPath: unsupported pod version: {version}"
        return [invalid_value(f"{field}.fieldPath", path, detail)]
    if subscript and base in ("metadata.annotations", "metadata.labels"):
        key = subscript[2]
        return qualified_name(key.lower() if base == "metadata.annotations" else key, field)
    if subscript and base in _KNOWN_FIELDS:
        return [invalid_value(field, base, "does not support subscript")]
    if base not in _KNOWN_FIELDS:
        detail = f"error converting fieldPath: field label not supported: {base}"
        return [invalid_value(f"{field}.fieldPath", path, detail)]
    return [] if base in fields else [not_supported(f"{field}.fieldPath", base, fields)]


def resource_reference(reference: Object, field: str, *, volume: bool = False) -> list[Cause]:
    """Check a reference to an amount of a container's resources; in a volume it must name the container."""
    causes: list[Cause] = []
    resource = reference.get("resource", "")
    if volume and not reference.get("containerName"):
        causes.append(required(f"{field}.containerName"))
    elif not resource:
        causes.append(required(f"{field}.resource"))
    elif resource not in RESOURCE_FIELDS and not resource.startswith(_HUGE_PAGES):
        causes.append(not_supported(f"{field}.resource", resource, RESOURCE_FIELDS))
    divisor = reference.get("divisor")
    if divisor is None or quantity.value_of(divisor) == 0:
        return causes
    for beginnings, units, words in _DIVISORS:
        if resource.startswith(beginnings) and quantity.canonical(str(divisor)) not in units:
            causes.append(invalid_value(f"{field}.divisor", resource, f"only divisor's values {words}"))
    return causes


def _key_reference(reference: Object, field: str) -> list[Cause]:
    causes = dns_subdomain(reference.get("name", ""), f"{field}.name")
    key = reference.get("key", "")
    return causes + (wrong(f"{field}.key", key, names.config_key(key)) if key else [required(f"{field}.key")])


def _file_reference(reference: Object, field: str) -> list[Cause]:
    key, volume, path = (reference.get(name, "") for name in ("key", "volumeName", "path"))
    causes = wrong(f"{field}.key", key, names.env_var_name(key)) if key else [required(f"{field}.key")]
    causes += dns_label(volume, f"{field}.volumeName") if volume else [required(f"{field}.volumeName")]
    return causes + (no_backsteps(path, f"{field}.path") if path else [required(f"{field}.path")])


_SOURCES: Final = ("fieldRef", "resourceFieldRef", "configMapKeyRef", "secretKeyRef", "fileKeyRef")
_NO_SOURCE: Final = (
    "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`"
)
_NO_SOURCE_BUT_FILES: Final = "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef` or `secretKeyRef`"


def environment(
    variables: Sequence[Object], field: str, files: list[tuple[str, str]], *, from_files: bool
) -> list[Cause]:
    """Check that each variable has a name, and a value or one source. ``from_files``: a file may be one.

    A variable from a file adds (field that names the volume, volume name) to ``files``.
    """
    causes: list[Cause] = []
    for index, variable in enumerate(variables):
        name = variable.get("name", "")
        if not name:
            causes.append(required(f"{field}[{index}].name"))
        else:
            problems = names.env_var_name(name)
            if problems:
                causes += wrong(f"{field}[{index}].name", name, problems)
        if variable.get("valueFrom") is not None:
            path, source = f"{field}[{index}].valueFrom", variable["valueFrom"]
            causes += _value_from(variable, path, from_files=from_files)
            if source.get("fileKeyRef") is not None:
                files.append((f"{path}.fileKeyRef.volumeName", source["fileKeyRef"].get("volumeName", "")))
    return causes


def _value_from(variable: Object, field: str, *, from_files: bool) -> list[Cause]:
    source = variable["valueFrom"]
    given = [name for name in _SOURCES if source.get(name) is not None]
    causes: list[Cause] = []
    for name in given:
        reference, path = source[name], f"{field}.{name}"
        if name == "fieldRef":
            causes += field_reference(reference, ENV_FIELDS, path)
        elif name == "resourceFieldRef":
            causes += resource_reference(reference, path)
        elif name == "fileKeyRef":
            causes += _file_reference(reference, path)
        else:
            causes += _key_reference(reference, path)
    if not given:
        causes.append(invalid_value(field, "", _NO_SOURCE if from_files else _NO_SOURCE_BUT_FILES))
    elif variable.get("value"):
        causes.append(invalid_value(field, "", "may not be specified when `value` is not empty"))
    elif len(given) > 1:
        causes.append(invalid_value(field, "", "may not have more than one field specified at a time"))
    return causes


def environment_from(sources: Sequence[Object], field: str) -> list[Cause]:
    """Check that each source of variables is one map."""
    causes: list[Cause] = []
    for index, source in enumerate(sources):
        path = f"{field}[{index}]"
        if source.get("prefix"):
            causes += wrong(f"{path}.prefix", source["prefix"], names.env_var_name(source["prefix"]))
        given = [name for name in ("configMapRef", "secretRef") if source.get(name) is not None]
        for name in given:
            named = source[name].get("name", "")
            if not named:
                causes.append(required(f"{path}.{name}.name"))
            else:
                causes += wrong(f"{path}.{name}.name", named, names.subdomain_name(named, True))
        if not given:
            causes.append(invalid_value(field, "", "must specify one of: `configMapRef` or `secretRef`"))
        elif len(given) > 1:
            causes.append(invalid_value(field, "", "may not have more than one field specified at a time"))
    return causes


# -- mounts -----------------------------------------------------------------------------------------------------------

BIND_OPTIONS: Final = ("nodev", "noexec", "nosuid")


def bind_options(options: Sequence[str], path: str, volume: Object | None) -> list[Cause]:
    """Check the options of a bind mount, which an image volume is not."""
    field, causes, again = f"{path}.bindMountOptions", list[Cause](), repeated(options)
    for index, option in enumerate(options):
        causes += one_of_if_set(option, BIND_OPTIONS, f"{field}[{index}]")
        if again[index]:
            causes.append(duplicate(f"{field}[{index}]", option))
    if options and (volume or {}).get("image") is not None:
        causes.append(invalid_value(field, options, "bindMountOptions may not be used with image volumes"))
    return causes


HTTP1: Final = "HTTP1"
HTTP2: Final = "HTTP2"

# -- probes -----------------------------------------------------------------------------------------------------------

_HEADER: Final = re.compile(r"[-A-Za-z0-9]+\Z")
_HEADER_MESSAGE: Final = (
    "a valid HTTP header must consist of alphanumeric characters or '-' (e.g. 'X-Header-Name', regex used for "
    "validation is '[-A-Za-z0-9]+')"
)


def _handler(handler: Object, field: str, grace: int | None, actions: tuple[str, ...]) -> list[Cause]:
    given = [name for name in actions if handler.get(name) is not None]
    if not given:
        return [required(field, "must specify a handler type")]
    causes = _action(given[0], handler[given[0]], f"{field}.{given[0]}", grace)
    return causes + [forbidden(f"{field}.{name}", "may not specify more than 1 handler type") for name in given[1:]]


def _action(name: str, action: Object, field: str, grace: int | None) -> list[Cause]:
    if name == "exec":
        return [] if action.get("command") else [required(f"{field}.command")]
    if name == "tcpSocket":
        return port_number_or_name(action.get("port", 0), f"{field}.port")
    if name == "grpc":
        causes = port_number(action.get("port", 0), f"{field}.port")
        return causes + one_of_if_set(action.get("mode"), enum("core.v1.GRPCProbeMode"), f"{field}.mode")
    if name == "sleep":
        seconds = action.get("seconds", 0)
        if grace is None or 0 <= seconds <= grace:
            return []
        detail = f"must be non-negative and less than terminationGracePeriodSeconds ({grace})"
        return [invalid_value(field, seconds, detail)]
    causes = [] if action.get("path") else [required(f"{field}.path")]
    causes += port_number_or_name(action.get("port", 0), f"{field}.port")
    causes += one_of_if_set(action.get("scheme", ""), enum("core.v1.URIScheme"), f"{field}.scheme")
    for header in action.get("httpHeaders") or ():
        if not _HEADER.match(header.get("name", "")):
            causes.append(invalid_value(f"{field}.httpHeaders", header.get("name", ""), _HEADER_MESSAGE))
    protocol = action.get("protocol")
    if protocol != HTTP2:
        causes += one_of_if_set(protocol, (HTTP1, HTTP2), f"{field}.protocol")
    elif action.get("scheme") != "HTTP":
        causes.append(invalid_value(f"{field}.protocol", protocol, "is only supported with HTTP (H2C)"))
    elif action.get("host"):
        causes.append(invalid_value(f"{field}.host", action["host"], f'must be empty when `protocol` is "{HTTP2}"'))
    return causes


_PROBE_ACTIONS: Final = ("exec", "httpGet", "tcpSocket", "grpc")
_HOOK_ACTIONS: Final = ("exec", "httpGet", "tcpSocket", "sleep")
_PROBE_NUMBERS: Final = (
    "initialDelaySeconds",
    "timeoutSeconds",
    "periodSeconds",
    "successThreshold",
    "failureThreshold",
)
PROBES: Final = ("livenessProbe", "readinessProbe", "startupProbe")


def probe(kind: str, given: Object, field: str) -> list[Cause]:
    """Check the handler and the numbers of a probe; a liveness or startup probe needs a success threshold of 1."""
    causes = _handler(given, field, None, _PROBE_ACTIONS) + not_negative(given, field, *_PROBE_NUMBERS)
    seconds = given.get("terminationGracePeriodSeconds")
    path = f"{field}.terminationGracePeriodSeconds"
    if seconds is not None and seconds <= 0:
        causes.append(invalid_value(path, seconds, "must be greater than 0"))
    if kind == "readinessProbe":
        if seconds is not None:
            causes.append(invalid_value(path, seconds, "must not be set for readinessProbes"))
    elif given.get("successThreshold", 0) != 1:
        causes.append(invalid_value(f"{field}.successThreshold", given.get("successThreshold", 0), "must be 1"))
    return causes


_SIGNALS_OF_WINDOWS: Final = ("SIGKILL", "SIGTERM")


def lifecycle(given: Object, field: str, grace: int | None, os: str | None) -> list[Cause]:
    """Check that each hook has one handler, and that the operating system has the signal that stops the container."""
    causes: list[Cause] = []
    for name in ("postStart", "preStop"):
        if given.get(name) is not None:
            causes += _handler(given[name], f"{field}.{name}", grace, _HOOK_ACTIONS)
    signal, path = given.get("stopSignal"), f"{field}.stopSignal"
    if signal is None:
        return causes
    if os is None:
        return [*causes, forbidden(path, "may not be set for containers with empty `spec.os.name`")]
    known = {"windows": _SIGNALS_OF_WINDOWS, "linux": enum("core.v1.Signal")}.get(os, (signal,))
    return causes if signal in known else [*causes, not_supported(path, signal, known)]
