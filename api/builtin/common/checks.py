"""Checks of single values that many kinds share.

Lives here: enumerations, ranges, addresses, paths, label selectors, percentages, conditions. Not here: the fields to
check (the kinds' files), the syntax of names (api/values/names.py), and the wording of causes
(api/errors/field_errors.py).
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any, Final

from kubechronicle.api.errors.field_errors import (
    Cause,
    duplicate,
    forbidden,
    invalid_value,
    not_supported,
    required,
    too_long,
)
from kubechronicle.api.meta.metadata import IMMUTABLE, validate_labels
from kubechronicle.api.schema.equality import same_json
from kubechronicle.api.values import names
from kubechronicle.api.values.objects import Object, ReadOnlyObject

NOT_NEGATIVE: Final = "must be greater than or equal to 0"
PROTOCOLS: Final = ("SCTP", "TCP", "UDP")
MAX_INT32: Final = 2**31 - 1
MIRROR: Final = "kubernetes.io/config.mirror"
"""Annotation of a mirror pod, which represents a static pod of a kubelet."""


def immutable(field: str, new: Any, old: Any) -> list[Cause]:
    """Return a cause if the field has changed."""
    return [] if same_json(new, old) else [invalid_value(field, new, IMMUTABLE)]


def sorted_labels(labels: Mapping[str, str] | None) -> dict[str, str] | None:
    """Return labels sorted by key, as messages show them."""
    return None if labels is None else dict(sorted(labels.items()))


def wrong(field: str, value: Any, problems: Iterable[str]) -> list[Cause]:
    """Return a cause for each problem of a value."""
    return [invalid_value(field, value, problem) for problem in problems]


def missing(obj: Mapping[str, Any], field: str, *members: str) -> list[Cause]:
    """Return causes for members that are absent or empty."""
    return [required(f"{field}.{name}" if field else name) for name in members if not obj.get(name)]


def one_of(value: Any, choices: Sequence[str], field: str) -> list[Cause]:
    """Require one of the choices."""
    if value in choices:
        return []
    return [not_supported(field, value, choices)] if value else [required(field)]


def one_of_if_set(value: Any, choices: Sequence[str], field: str) -> list[Cause]:
    """Reject a value other than the choices, unless it is None; "" is not a choice."""
    return [] if value is None or value in choices else [not_supported(field, value, choices)]


def in_range(value: int, low: int, high: int, field: str) -> list[Cause]:
    """Reject a number outside of low to high."""
    if low <= value <= high:
        return []
    return [invalid_value(field, value, f"must be between {low} and {high}, inclusive")]


def not_negative(spec: Mapping[str, Any], field: str, *members: str) -> list[Cause]:
    """Return causes for numbers below zero."""
    prefix = f"{field}." if field else ""
    return [
        invalid_value(f"{prefix}{name}", spec[name], NOT_NEGATIVE)
        for name in members
        if spec.get(name) is not None and spec[name] < 0
    ]


def dns_label(value: str, field: str) -> list[Cause]:
    """Check that a value is a DNS label."""
    return wrong(field, value, names.dns_label(value))


def dns_subdomain(value: str, field: str) -> list[Cause]:
    """Check that a value is a DNS subdomain."""
    return wrong(field, value, names.dns_subdomain(value))


def qualified_name(value: str, field: str) -> list[Cause]:
    """Check that a value is a name with an optional domain prefix."""
    return wrong(field, value, names.qualified_name(value))


def port_number_or_name(value: int | str, field: str) -> list[Cause]:
    """Check the number or name of a port."""
    return wrong(field, value, names.port_number(value) if isinstance(value, int) else names.port_name(value))


def port_number(value: int, field: str) -> list[Cause]:
    """Check the number of a port."""
    return wrong(field, value, names.port_number(value))


# -- addresses --------------------------------------------------------------------------------------------------------

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

IP_MESSAGE: Final = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"
CIDR_MESSAGE: Final = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"
_LEADING_ZEROS: Final = re.compile(r"(?<![0-9])0+(?=[0-9])")


def parse_ip(text: str) -> Address | None:
    """Return the address, or None if it is invalid. Leading zeros are accepted in IPv4: old objects may have them."""
    if "%" in text:
        return None
    try:
        return ipaddress.ip_address(_LEADING_ZEROS.sub("", text) if ":" not in text else text)
    except ValueError:
        return None


def parse_cidr(text: str) -> Network | None:
    """Return the network of an address with a prefix length, or None if it is invalid."""
    address, slash, bits = text.partition("/")
    if not slash or not bits.isdigit() or (len(bits) > 1 and bits[0] == "0"):
        return None
    parsed = parse_ip(address)
    try:
        return None if parsed is None else ipaddress.ip_network((parsed, int(bits)), strict=False)
    except ValueError:
        return None


def dual_stack(values: Sequence[Address | Network]) -> bool:
    """Return whether both address families occur. An IPv4-mapped address counts as IPv4."""
    return {_family(value) for value in values} == {4, 6}


def _family(value: Address | Network) -> int:
    address = value.network_address if isinstance(value, Network) else value
    return 4 if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None else value.version


_LINK_LOCAL_MULTICAST: Final = (ipaddress.ip_network("224.0.0.0/24"), ipaddress.ip_network("ff02::/16"))


def non_special_ip(value: str, field: str) -> list[Cause]:
    """Reject unspecified, loopback, link-local and link-local multicast addresses."""
    address = parse_ip(value)
    if address is None:
        return [invalid_value(field, value, "must be a valid IP address")]
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    details = []
    if address.is_unspecified:
        details.append(f"may not be unspecified ({value})")
    if address.is_loopback:
        details.append("may not be in the loopback range (127.0.0.0/8, ::1/128)")
    if address.is_link_local:
        details.append("may not be in the link-local range (169.254.0.0/16, fe80::/10)")
    if any(address in network for network in _LINK_LOCAL_MULTICAST if network.version == address.version):
        details.append("may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)")
    return wrong(field, value, details)


# -- paths ------------------------------------------------------------------------------------------------------------


def no_backsteps(path: str, field: str) -> list[Cause]:
    """Reject a path with ".."."""
    return [invalid_value(field, path, "must not contain '..'")] if ".." in path.split("/") else []


def descending_path(path: str, field: str) -> list[Cause]:
    """Reject an absolute path and one with ".."."""
    causes = [invalid_value(field, path, "must be a relative path")] if path.startswith("/") else []
    return causes + no_backsteps(path, field)


def local_path(path: str, field: str) -> list[Cause]:
    """Reject an absolute path, one with "..", and one that begins with ".."."""
    causes = descending_path(path, field)
    if path.startswith("..") and not path.startswith("../"):
        causes.append(invalid_value(field, path, "must not start with '..'"))
    return causes


# -- selectors --------------------------------------------------------------------------------------------------------

_OPERATORS: Final = ("In", "NotIn", "Exists", "DoesNotExist")
NEEDS_VALUES: Final = "must be specified when `operator` is 'In' or 'NotIn'"
HAS_NO_VALUES: Final = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"


def label_selector(selector: Object | None, field: str) -> list[Cause]:
    """Check the labels and requirements of a label selector."""
    causes: list[Cause] = []
    if not selector:
        return causes
    causes += validate_labels(selector.get("matchLabels") or {}, f"{field}.matchLabels")
    for index, requirement in enumerate(selector.get("matchExpressions") or ()):
        causes += label_requirement(requirement, f"{field}.matchExpressions[{index}]")
    return causes


def label_requirement(requirement: ReadOnlyObject, path: str, *, any_operator: bool = False) -> list[Cause]:
    """Check one requirement. ``any_operator``: unknown operators are accepted."""
    causes: list[Cause] = []
    operator, values = requirement.get("operator", ""), requirement.get("values") or ()
    if operator not in _OPERATORS and not any_operator:
        causes.append(invalid_value(f"{path}.operator", operator, "not a valid selector operator"))
    elif operator in ("In", "NotIn") and not values:
        causes.append(required(f"{path}.values", NEEDS_VALUES))
    elif operator in ("Exists", "DoesNotExist") and values:
        causes.append(forbidden(f"{path}.values", HAS_NO_VALUES))
    causes += qualified_name(requirement.get("key", ""), f"{path}.key")
    for position, value in enumerate(values):
        causes += wrong(f"{path}.values[{position}]", value, names.label_value(value))
    return causes


def repeated(values: Iterable[Hashable]) -> list[bool]:
    """Return for each value of a list whether it occurred before."""
    seen: set[Hashable] = set()
    found = []
    for value in values:
        found.append(value in seen)
        seen.add(value)
    return found


def unique(values: Sequence[Any], field: str, *, below: str = "") -> list[Cause]:
    """Return a cause for each repeated value of a list."""
    return [
        duplicate(f"{field}[{index}]{below}", values[index]) for index, again in enumerate(repeated(values)) if again
    ]


# -- numbers and percentages ------------------------------------------------------------------------------------------

_PERCENT: Final = re.compile(r"[0-9]+%\Z")


def int_or_percent(value: int | str, field: str) -> list[Cause]:
    """Check that a value is a number that is not negative, or a percentage."""
    if isinstance(value, int):
        return [] if value >= 0 else [invalid_value(field, value, NOT_NEGATIVE)]
    if _PERCENT.match(value):
        return []
    message = "a valid percent string must be a numeric string followed by an ending '%'"
    return [invalid_value(field, value, names.regex_message(message, "[0-9]+%", "1%", "93%"))]


def at_most_100_percent(value: int | str, field: str) -> list[Cause]:
    """Reject a percentage above 100 %."""
    if isinstance(value, str) and _PERCENT.match(value) and int(value[:-1]) > 100:
        return [invalid_value(field, value, "must not be greater than 100%")]
    return []


def is_zero(value: int | str) -> bool:
    """Return whether a number or percentage is zero; invalid text counts as zero."""
    if isinstance(value, int):
        return value == 0
    number = value[:-1] if _PERCENT.match(value) else value
    return not number.isdigit() or int(number) == 0


# -- conditions -------------------------------------------------------------------------------------------------------

STATUSES: Final = ("False", "True", "Unknown")
MAX_REASON: Final = 1024
MAX_MESSAGE: Final = 32 * 1024
_REASON: Final = r"[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?"
_REASON_MESSAGE: Final = (
    "a condition reason must start with alphabetic character, optionally followed by a string of alphanumeric "
    "characters or '_,:', and must end with an alphanumeric character or '_'"
)
_EXAMPLES: Final = ("my_name", "MY_NAME", "MyName", "ReasonA,ReasonB", "ReasonA:ReasonB")


def conditions(given: Sequence[Object], field: str) -> list[Cause]:
    """Check each condition, and that their types differ."""
    causes: list[Cause] = []
    seen: set[str] = set()
    for index, condition in enumerate(given):
        path, kind = f"{field}[{index}]", condition.get("type", "")
        if kind in seen:
            causes.append(duplicate(path, kind))
        seen.add(kind)
        causes += _condition(condition, path)
    return causes


def _condition(condition: Object, path: str) -> list[Cause]:
    kind, status = condition.get("type", ""), condition.get("status", "")
    causes = qualified_name(kind, f"{path}.type") if kind else [required(f"{path}.type", "is required")]
    generation = condition.get("observedGeneration", 0)
    if not status:
        causes.append(required(f"{path}.status"))
    elif status not in STATUSES:
        causes.append(not_supported(f"{path}.status", status, STATUSES))
    if generation < 0:
        causes.append(invalid_value(f"{path}.observedGeneration", generation, "must be greater than or equal to zero"))
    if not condition.get("lastTransitionTime"):
        causes.append(required(f"{path}.lastTransitionTime"))
    causes += condition_reason(condition.get("reason", ""), f"{path}.reason")
    if len(condition.get("message", "").encode()) > MAX_MESSAGE:
        causes.append(too_long(f"{path}.message", MAX_MESSAGE))
    return causes


def condition_reason(reason: str, path: str, most: int = MAX_REASON) -> list[Cause]:
    """Check the reason of a condition, of at most so many bytes."""
    if not reason:
        return [required(path)]
    causes = _reason_syntax(reason, path)
    if len(reason.encode()) > most:
        causes.append(too_long(path, most))
    return causes


def _reason_syntax(reason: str, path: str) -> list[Cause]:
    if re.fullmatch(_REASON, reason):
        return []
    return [invalid_value(path, reason, names.regex_message(_REASON_MESSAGE, _REASON, *_EXAMPLES))]


def health_conditions(health: Object, field: str) -> list[Cause]:
    """Check the reasons of the conditions that a CSI driver tells about a volume; tags check the rest."""
    causes: list[Cause] = []
    for index, condition in enumerate(health.get("healthConditions") or ()):
        if condition.get("reason"):
            causes += _reason_syntax(condition["reason"], f"{field}.healthConditions[{index}].reason")
    return causes
