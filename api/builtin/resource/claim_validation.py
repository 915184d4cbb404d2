"""Validation of ResourceClaims and ResourceClaimTemplates (KEP-4381 and its successors).

The spec of both is immutable: an update is checked only for that.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kubechronicle.api.builtin.common.checks import dns_label, dns_subdomain, wrong
from kubechronicle.api.builtin.common.expressions import derived_attribute
from kubechronicle.api.builtin.common.go_shapes import printed_metadata, record
from kubechronicle.api.builtin.resource.devices import (
    MAX_CONFIGS,
    MAX_EXPRESSION,
    MAX_SELECTORS,
    Check,
    cel_selector,
    check_each,
    check_each_unique,
    check_tagged,
    configuration,
)
from kubechronicle.api.errors.field_errors import Cause, forbidden, invalid_value, not_supported, required, too_long
from kubechronicle.api.meta import metadata
from kubechronicle.api.meta.template_metadata import validate_template_metadata
from kubechronicle.api.schema.equality import same_json
from kubechronicle.api.values import names
from kubechronicle.api.values.objects import Object

MAX_REQUESTS: Final = 32
MAX_CONSTRAINTS: Final = 32
MAX_ALTERNATIVES: Final = 8
BOTH_FORMS: Final = "exactly one of `exactly` or `firstAvailable` is required"
ONE_ATTRIBUTE: Final = 'exactly one of "matchAttribute" or "distinctAttribute" is required, but multiple fields are set'
ATTRIBUTES: Final = ("matchAttribute", "distinctAttribute")
UNUSED_ATTRIBUTE: Final = (
    "must be referenced by at least one matchAttribute or distinctAttribute constraint targeting this request"
)
MAX_COST: Final = 1_000_000
"""The limit of the costs of all derived attributes of a claim."""
TOO_COMPLEX: Final = "too complex, total cost of derived attribute CEL expressions in the claim exceeds cost limit"
REQUEST_REFERENCE: Final = (
    "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'"
)


# -- names ------------------------------------------------------------------------------------------------------------

RequestNames = dict[str, frozenset[str]]


def request_names(spec: Object) -> RequestNames:
    """Return the names of a claim's requests, each with those of its alternatives."""
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


# -- requests ---------------------------------------------------------------------------------------------------------


def toleration(given: Object, field: str) -> list[Cause]:
    """Check the toleration of device taints."""
    operator, value = given.get("operator", ""), given.get("value", "")
    if operator == "Exists" and value:
        return [invalid_value(f"{field}.value", value, "must be empty for operator `Exists`")]
    return wrong(f"{field}.value", value, names.label_value(value)) if operator == "Equal" else []


class _Derived:
    """The check of the attributes that the requests of one claim derive, and their costs together."""

    def __init__(self, constraints: Sequence[Object], *, lists: bool) -> None:
        self._lists = lists
        self._used: set[tuple[str, str]] = set()
        for each in constraints:
            name = next((each[kind] for kind in ATTRIBUTES if each.get(kind) is not None), None)
            self._used |= {(request, name) for request in each.get("requests") or ("",)} if name is not None else set()
        self.cost = 0

    def check(self, request: Object, field: str, names: Sequence[str]) -> list[Cause]:
        """Check the attributes of a request that constraints call by one of ``names``."""

        def one(attribute: Object, path: str) -> list[Cause]:
            name, expression, causes = attribute.get("name", ""), attribute.get("expression", ""), list[Cause]()
            if name and not any((each, name) in self._used for each in ("", *names)):
                causes.append(invalid_value(f"{path}.name", name, UNUSED_ATTRIBUTE))
            if len(expression.encode()) > MAX_EXPRESSION:
                return [*causes, too_long(f"{path}.expression", MAX_EXPRESSION)]
            if expression:
                found, cost = derived_attribute(expression, f"{path}.expression", lists=self._lists)
                causes += found
                self.cost += cost
            return causes

        path = f"{field}.derivedAttributes"
        return check_each_unique(request.get("derivedAttributes"), -1, path, one, lambda each: each.get("name", ""))


def _exact(request: Object, field: str) -> list[Cause]:
    name, path = request.get("deviceClassName", ""), f"{field}.deviceClassName"
    return (dns_subdomain(name, path) if name else [required(path)]) + _either(request, field)


def _either(request: Object, field: str) -> list[Cause]:
    causes = check_tagged(request.get("selectors"), MAX_SELECTORS, f"{field}.selectors", cel_selector)
    mode, count = request.get("allocationMode", ""), request.get("count", 0)
    if mode == "All":
        if count:
            detail = "must not be specified when allocationMode is 'All'"
            causes.append(invalid_value(f"{field}.count", count, detail))
    elif mode == "ExactCount" and count <= 0:
        causes.append(invalid_value(f"{field}.count", count, "must be greater than zero"))
    elif not mode:  # of v1beta1 without a class, which has no default; the tag of the field skips it
        causes.append(not_supported(f"{field}.allocationMode", mode, ("All", "ExactCount")))
    return causes + check_each(request.get("tolerations"), -1, f"{field}.tolerations", toleration)


def _request(request: Object, field: str, derived: _Derived) -> list[Cause]:
    name = request.get("name", "")

    def alternative(choice: Object, place: str) -> list[Cause]:
        own = choice.get("name", "")
        causes = dns_label(own, f"{place}.name") + _either(choice, place)
        return causes + derived.check(choice, place, (name, f"{name}/{own}"))

    causes = dns_label(request.get("name", ""), f"{field}.name")
    exact, choices = request.get("exactly"), request.get("firstAvailable")
    if exact is None and not choices:
        causes.append(required(field, BOTH_FORMS))
    elif exact is not None and choices:
        causes.append(invalid_value(field, None, f"{BOTH_FORMS}, but multiple fields are set"))
    elif exact is not None:
        causes += _exact(exact, f"{field}.exactly") + derived.check(exact, f"{field}.exactly", (name,))
    else:
        causes += check_tagged(choices, MAX_ALTERNATIVES, f"{field}.firstAvailable", alternative)
    return causes


# -- claims -----------------------------------------------------------------------------------------------------------


def _claim_spec(spec: Object, field: str, *, lists: bool) -> list[Cause]:
    devices, path = spec.get("devices") or {}, f"{field}.devices"
    derived = _Derived(devices.get("constraints") or (), lists=lists)
    refers = request_reference(request_names(spec))

    def constraint(given: Object, place: str) -> list[Cause]:
        causes = check_tagged(given.get("requests"), MAX_REQUESTS, f"{place}.requests", refers)
        named = any(given.get(name) is not None for name in ATTRIBUTES)
        return causes if named else [*causes, required(place, ONE_ATTRIBUTE)]

    def config(given: Object, place: str) -> list[Cause]:
        causes = check_tagged(given.get("requests"), MAX_REQUESTS, f"{place}.requests", refers)
        return causes + configuration(given, place)

    def request(given: Object, place: str) -> list[Cause]:
        return _request(given, place, derived)

    causes = check_tagged(devices.get("requests"), MAX_REQUESTS, f"{path}.requests", request)
    causes += check_tagged(devices.get("constraints"), MAX_CONSTRAINTS, f"{path}.constraints", constraint)
    causes += check_tagged(devices.get("config"), MAX_CONFIGS, f"{path}.config", config)
    return [*causes, forbidden(path, TOO_COMPLEX)] if derived.cost > MAX_COST else causes


def claim(obj: Object, *, lists: bool = False) -> list[Cause]:
    """Check the requests, constraints and configuration of a ResourceClaim. ``lists``: attributes may be lists."""
    return _claim_spec(obj["spec"], "spec", lists=lists)


def claim_template(obj: Object, *, lists: bool = False) -> list[Cause]:
    """Check the labels, annotations and spec of the claims that a template makes. ``lists``: as for claims."""
    causes = validate_template_metadata(obj["spec"].get("metadata") or {}, "spec.metadata")
    return causes + _claim_spec(obj["spec"].get("spec") or {}, "spec.spec", lists=lists)


def _without_empty_metadata(spec: Object) -> Object:
    meta = {name: value for name, value in (spec.get("metadata") or {}).items() if value not in ([], {})}
    return {**spec, "metadata": meta}


def claim_template_update(new: Object, old: Object) -> list[Cause]:
    """Reject a changed spec. An empty list in its metadata is no change."""
    if same_json(_without_empty_metadata(new["spec"]), _without_empty_metadata(old["spec"])):
        return []
    meta = new["spec"].get("metadata") or {}
    shown = printed_metadata(meta)
    shown["Spec"] = record(new["spec"].get("spec") or {}, "ResourceClaimSpec")
    return [invalid_value("spec", shown, metadata.IMMUTABLE)]
