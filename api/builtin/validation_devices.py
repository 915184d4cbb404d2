"""Validation of resource.k8s.io: what is asked of devices, and the classes they are of (KEP-4381 and those after it).

What is asked stays as it was asked: an update of a claim or a template only checks that.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Sequence
from typing import Any, Final

from kubechronicle.api.builtin.checks import dns_label, dns_subdomain, wrong
from kubechronicle.api.builtin.go_shapes import shape
from kubechronicle.api.builtin.validation_expressions import device_selector
from kubechronicle.api.builtin.validation_resources import is_extended
from kubechronicle.api.builtin.validation_volumes import csi_driver_name
from kubechronicle.api.errors.field_errors import (
    Cause,
    duplicate,
    go_json,
    invalid_value,
    not_supported,
    required,
    too_long,
    too_many,
)
from kubechronicle.api.meta import metadata
from kubechronicle.api.values import names
from kubechronicle.api.values.objects import Object

Check = Callable[[Any, str], list[Cause]]

ALLOCATION_MODES: Final = ("All", "ExactCount")
OPERATORS: Final = ("Equal", "Exists")
EFFECTS: Final = ("NoExecute", "NoSchedule", "None")
MAX_REQUESTS: Final = 32
MAX_SELECTORS: Final = 32
MAX_CONSTRAINTS: Final = 32
MAX_CONFIGS: Final = 32
MAX_ALTERNATIVES: Final = 8
MAX_EXPRESSION: Final = 10 * 1024
MAX_PARAMETERS: Final = 10 * 1024
MAX_POOL_NAME: Final = 253
MAX_ID: Final = 32
BOTH_FORMS: Final = "exactly one of `exactly` or `firstAvailable` is required"
ONE_ATTRIBUTE: Final = 'exactly one of "matchAttribute" or "distinctAttribute" is required, but multiple fields are set'
REQUEST_REFERENCE: Final = (
    "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'"
)
_IDENTIFIER: Final = "[A-Za-z_][A-Za-z0-9_]*"
_IDENTIFIER_MESSAGE: Final = (
    "a valid C identifier must start with alphabetic character or '_', followed by a string of alphanumeric "
    "characters or '_'"
)


# -- lists ------------------------------------------------------------------------------------------------------------


def each(items: Sequence[Any] | None, most: int, field: str, check: Check) -> list[Cause]:
    """Check every item of a list; of a list that is too long only that is said. ``most`` below 0: any number."""
    items = items or ()
    if 0 <= most < len(items):
        return [too_many(field, len(items), most)]
    return [cause for index, item in enumerate(items) for cause in check(item, f"{field}[{index}]")]


def each_once(
    items: Sequence[Any] | None, most: int, field: str, check: Check, key: Callable[[Any], Hashable] = lambda item: item
) -> list[Cause]:
    """Check every item of a list in which no key stands twice."""
    items = items or ()
    causes = each(items, most, field, check)
    if 0 <= most < len(items):
        return causes
    seen: set[Hashable] = set()
    for index, item in enumerate(items):
        if key(item) in seen:
            causes.append(duplicate(f"{field}[{index}]", key(item)))
        seen.add(key(item))
    return causes


# -- names ------------------------------------------------------------------------------------------------------------


def pool_name(name: str, field: str) -> list[Cause]:
    """A pool of devices: DNS names with slashes between them."""
    if not name:
        return [required(field)]
    causes = [too_long(field, MAX_POOL_NAME)] if len(name.encode()) > MAX_POOL_NAME else []
    return causes + [cause for part in name.split("/") for cause in dns_subdomain(part, field)]


def _identifier(name: str, field: str) -> list[Cause]:
    causes = [too_long(field, MAX_ID)] if len(name.encode()) > MAX_ID else []
    if not re.fullmatch(_IDENTIFIER, name):
        detail = names.regex_message(_IDENTIFIER_MESSAGE, _IDENTIFIER, "my_name", "MY_NAME", "MyName")
        causes.append(invalid_value(field, name, detail))
    return causes


def qualified_name(name: str, field: str) -> list[Cause]:
    """An attribute or capacity: an identifier, perhaps in a domain. More than one slash is not looked at."""
    parts = name.split("/")
    if len(parts) == 1:
        return _identifier(name, field)
    if len(parts) > 2:
        return []
    domain, own = parts
    causes = csi_driver_name(domain, field) if domain else [invalid_value(field, "", "the domain must not be empty")]
    return causes + (_identifier(own, field) if own else [invalid_value(field, "", "the name must not be empty")])


def fully_qualified_name(name: str, field: str) -> list[Cause]:
    """An attribute with its domain."""
    causes = qualified_name(name, field)
    if "/" not in name:
        detail = "a fully qualified name must be a domain and a name separated by a slash"
        causes.append(invalid_value(field, name, detail))
    return causes


RequestNames = dict[str, frozenset[str]]


def request_names(spec: Object) -> RequestNames:
    """Return the names of a claim's requests with those of their alternatives."""
    found: RequestNames = {}
    for request in (spec.get("devices") or {}).get("requests") or ():
        choices = request.get("firstAvailable") or ()
        found[request.get("name", "")] = frozenset(choice.get("name", "") for choice in choices)
    return found


def request_reference(known: RequestNames) -> Check:
    """Return a check that a text names one of these requests or one of its alternatives."""

    def check(name: str, field: str) -> list[Cause]:
        parts = name.split("/")
        if len(parts) > 2:
            return [invalid_value(field, name, REQUEST_REFERENCE)]
        causes = [cause for part in parts for cause in dns_label(part, field)]
        if parts[0] not in known or (len(parts) == 2 and parts[1] not in known[parts[0]]):
            causes.append(invalid_value(field, name, REQUEST_REFERENCE))
        return causes

    return check


# -- parts ------------------------------------------------------------------------------------------------------------


def _selector(selector: Object, field: str) -> list[Cause]:
    cel = selector.get("cel")
    if cel is None:
        return [required(f"{field}.cel")]
    expression = cel.get("expression", "")
    if len(expression.encode()) > MAX_EXPRESSION:
        return [too_long(f"{field}.cel.expression", MAX_EXPRESSION)]
    return device_selector(expression, f"{field}.cel.expression")


def toleration(given: Object, field: str) -> list[Cause]:
    """Which taints of devices a request bears."""
    key, value = given.get("key", ""), given.get("value", "")
    operator, effect = given.get("operator", ""), given.get("effect", "")
    causes = wrong(f"{field}.key", key, names.qualified_name(key)) if key else []
    if operator == "Exists":
        if value:
            causes.append(invalid_value(f"{field}.value", value, "must be empty for operator `Exists`"))
    elif operator == "Equal":
        causes += wrong(f"{field}.value", value, names.label_value(value))
    elif not operator:
        causes.append(required(f"{field}.operator"))
    else:
        causes.append(not_supported(f"{field}.operator", operator, OPERATORS))
    if effect and effect not in EFFECTS:
        causes.append(not_supported(f"{field}.effect", effect, EFFECTS))
    return causes


def parameters(given: Any, field: str, most: int = MAX_PARAMETERS) -> list[Cause]:
    """Parameters of a driver: an object, not too large."""
    if given is None:
        return [required(field)]
    if len(go_json(given).encode()) > most:
        return [too_long(field, most)]
    return [] if isinstance(given, dict) else [invalid_value(field, "<value omitted>", "must be a valid JSON object")]


def configuration(config: Object, field: str) -> list[Cause]:
    """What is told a driver."""
    opaque, path = config.get("opaque"), f"{field}.opaque"
    if opaque is None:
        return [required(path)]
    causes = csi_driver_name(opaque.get("driver", ""), f"{path}.driver")
    return causes + parameters(opaque.get("parameters"), f"{path}.parameters")


def _exact(request: Object, field: str) -> list[Cause]:
    name, path = request.get("deviceClassName", ""), f"{field}.deviceClassName"
    causes = dns_subdomain(name, path) if name else [required(path)]
    causes += each(request.get("selectors"), MAX_SELECTORS, f"{field}.selectors", _selector)
    mode, count = request.get("allocationMode", ""), request.get("count", 0)
    if mode == "All":
        if count:
            detail = "must not be specified when allocationMode is 'All'"
            causes.append(invalid_value(f"{field}.count", count, detail))
    elif mode == "ExactCount":
        if count <= 0:
            causes.append(invalid_value(f"{field}.count", count, "must be greater than zero"))
    else:
        causes.append(not_supported(f"{field}.allocationMode", mode, ALLOCATION_MODES))
    return causes + each(request.get("tolerations"), -1, f"{field}.tolerations", toleration)


def _alternative(request: Object, field: str) -> list[Cause]:
    return dns_label(request.get("name", ""), f"{field}.name") + _exact(request, field)


def _name_of(item: Object) -> str:
    return str(item.get("name", ""))


def _request(request: Object, field: str) -> list[Cause]:
    causes = dns_label(request.get("name", ""), f"{field}.name")
    exact, choices = request.get("exactly"), request.get("firstAvailable")
    if exact is None and not choices:
        causes.append(required(field, BOTH_FORMS))
    elif exact is not None and choices:
        causes.append(invalid_value(field, None, f"{BOTH_FORMS}, but multiple fields are set"))
    elif exact is not None:
        causes += _exact(exact, f"{field}.exactly")
    else:
        causes += each_once(choices, MAX_ALTERNATIVES, f"{field}.firstAvailable", _alternative, _name_of)
    return causes


# -- claims -----------------------------------------------------------------------------------------------------------


def _claim_spec(spec: Object, field: str) -> list[Cause]:
    devices, path = spec.get("devices") or {}, f"{field}.devices"
    refers = request_reference(request_names(spec))

    def constraint(given: Object, place: str) -> list[Cause]:
        causes = each_once(given.get("requests"), MAX_REQUESTS, f"{place}.requests", refers)
        for name in ("matchAttribute", "distinctAttribute"):
            if given.get(name) is not None:
                return causes + fully_qualified_name(given[name], f"{place}.{name}")
        return [*causes, required(place, ONE_ATTRIBUTE)]

    def config(given: Object, place: str) -> list[Cause]:
        causes = each_once(given.get("requests"), MAX_REQUESTS, f"{place}.requests", refers)
        return causes + configuration(given, place)

    causes = each_once(devices.get("requests"), MAX_REQUESTS, f"{path}.requests", _request, _name_of)
    causes += each(devices.get("constraints"), MAX_CONSTRAINTS, f"{path}.constraints", constraint)
    return causes + each(devices.get("config"), MAX_CONFIGS, f"{path}.config", config)


def claim(obj: Object) -> list[Cause]:
    """Which devices are asked for."""
    return _claim_spec(obj["spec"], "spec")


def claim_update(new: Object, old: Object) -> list[Cause]:
    """What is asked for stays."""
    if new["spec"] == old["spec"]:
        return []
    return [invalid_value("spec", shape(new["spec"], "ResourceClaimSpec"), metadata.IMMUTABLE)]


def claim_template(obj: Object) -> list[Cause]:
    """Which devices the claims made of it ask for, and what else those claims carry."""
    meta, field = obj["spec"].get("metadata") or {}, "spec.metadata"
    causes = metadata.validate_annotations(meta.get("annotations") or {}, f"{field}.annotations")
    causes += metadata.validate_labels(meta.get("labels") or {}, f"{field}.labels")
    return causes + _claim_spec(obj["spec"].get("spec") or {}, "spec.spec")


def claim_template_update(new: Object, old: Object) -> list[Cause]:
    """What is asked for stays."""
    if new["spec"] == old["spec"]:
        return []
    meta = new["spec"].get("metadata") or {}
    shown = {**meta, "Spec": shape(new["spec"].get("spec") or {}, "ResourceClaimSpec")}
    return [invalid_value("spec", shown, metadata.IMMUTABLE)]


# -- classes ----------------------------------------------------------------------------------------------------------


def device_class(obj: Object) -> list[Cause]:
    """Which devices are of a class, what their drivers are told, and by which extended resource pods ask for them."""
    spec = obj["spec"]
    causes = each(spec.get("selectors"), MAX_SELECTORS, "spec.selectors", _selector)
    causes += each(spec.get("config"), MAX_CONFIGS, "spec.config", configuration)
    name = spec.get("extendedResourceName")
    if name is not None and not is_extended(name):
        causes.append(invalid_value("spec.extendedResourceName", name, "must be a valid extended resource name"))
    return causes
