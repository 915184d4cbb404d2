"""Validation of probes and lifecycle hooks."""

from __future__ import annotations

import re
from typing import Final

from kubechronicle.api.builtin.common.checks import not_negative, one_of_if_set, port_number, port_number_or_name
from kubechronicle.api.errors.field_errors import Cause, forbidden, invalid_value, required
from kubechronicle.api.values.objects import Object

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
        return port_number(action.get("port", 0), f"{field}.port")
    if name == "sleep":
        seconds = action.get("seconds", 0)
        if grace is None or 0 <= seconds <= grace:
            return []
        detail = f"must be non-negative and less than terminationGracePeriodSeconds ({grace})"
        return [invalid_value(field, seconds, detail)]
    causes = [] if action.get("path") else [required(f"{field}.path")]
    causes += port_number_or_name(action.get("port", 0), f"{field}.port")
    causes += one_of_if_set(action.get("scheme", ""), ("HTTP", "HTTPS"), f"{field}.scheme")
    for header in action.get("httpHeaders") or ():
        if not _HEADER.match(header.get("name", "")):
            causes.append(invalid_value(f"{field}.httpHeaders", header.get("name", ""), _HEADER_MESSAGE))
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


def lifecycle(given: Object, field: str, grace: int | None) -> list[Cause]:
    """Check that each hook has one handler."""
    causes: list[Cause] = []
    for name in ("postStart", "preStop"):
        if given.get(name) is not None:
            causes += _handler(given[name], f"{field}.{name}", grace, _HOOK_ACTIONS)
    return causes
