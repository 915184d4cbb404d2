"""Validation that claims, classes and slices of devices share (resource.k8s.io).

It covers lists without repetitions, names of pools and attributes, selectors, and parameters of drivers.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any, Final

from kubechronicle.api.builtin.common.checks import dns_subdomain
from kubechronicle.api.builtin.common.expressions import device_selector
from kubechronicle.api.builtin.common.volume_sources import csi_driver_name
from kubechronicle.api.errors.field_errors import Cause, duplicate, go_json, invalid_value, required, too_long, too_many
from kubechronicle.api.values import names
from kubechronicle.api.values.objects import Object

Check = Callable[[Any, str], list[Cause]]

MAX_SELECTORS: Final = 32
MAX_CONFIGS: Final = 32
MAX_EXPRESSION: Final = 10 * 1024
MAX_PARAMETERS: Final = 10 * 1024
MAX_POOL_NAME: Final = 253
MAX_ID: Final = 32


# -- lists ------------------------------------------------------------------------------------------------------------


def check_each(items: Sequence[Any] | None, most: int, field: str, check: Check) -> list[Cause]:
    """Check every item of a list; report only the length of a list with more than ``most`` items (below 0: no
    limit)."""
    items = items or ()
    if 0 <= most < len(items):
        return [too_many(field, len(items), most)]
    return [cause for index, item in enumerate(items) for cause in check(item, f"{field}[{index}]")]


def check_tagged(items: Sequence[Any] | None, most: int, field: str, check: Check) -> list[Cause]:
    """Check every item of a list whose length, and whose repetitions, a tag bounds; none of too long a list."""
    items = items or ()
    return [] if len(items) > most else check_each(items, -1, field, check)


def check_each_unique(
    items: Sequence[Any] | None, most: int, field: str, check: Check, key: Callable[[Any], Hashable] = lambda item: item
) -> list[Cause]:
    """Check every item of a list, and that its keys differ."""
    items = items or ()
    causes = check_each(items, most, field, check)
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
    """Check the name of a pool: DNS subdomains with slashes between them."""
    if not name:
        return [required(field)]
    causes = [too_long(field, MAX_POOL_NAME)] if len(name.encode()) > MAX_POOL_NAME else []
    return causes + [cause for part in name.split("/") for cause in dns_subdomain(part, field)]


def _identifier(name: str, field: str) -> list[Cause]:
    causes = [too_long(field, MAX_ID)] if len(name.encode()) > MAX_ID else []
    return causes + [invalid_value(field, name, problem) for problem in names.c_identifier(name)]


def qualified_name(name: str, field: str) -> list[Cause]:
    """Check the name of an attribute or capacity: an identifier with an optional domain.

    Names with more than one slash are not checked.
    """
    parts = name.split("/")
    if len(parts) == 1:
        return _identifier(name, field)
    if len(parts) > 2:
        return []
    domain, own = parts
    causes = csi_driver_name(domain, field) if domain else [invalid_value(field, "", "the domain must not be empty")]
    return causes + (_identifier(own, field) if own else [invalid_value(field, "", "the name must not be empty")])


# -- operations of nodes ----------------------------------------------------------------------------------------------

PREPARE: Final = "NodePrepareResources"
UNPREPARE: Final = "NodeUnprepareResources"


def skipped_operations(holder: Object, field: str) -> list[Cause]:
    """Check that what a node does not prepare, it does not clean up either. ``*`` stands for all operations."""
    skipped = holder.get("skipNodeOperations") or []
    if PREPARE not in skipped or UNPREPARE in skipped or "*" in skipped:
        return []
    detail = f"{PREPARE} cannot be skipped unless {UNPREPARE} is also skipped"
    return [invalid_value(f"{field}.skipNodeOperations", skipped, detail)]


# -- selectors and configuration --------------------------------------------------------------------------------------


def cel_selector(selector: Object, field: str) -> list[Cause]:
    """Check the length and the expression of a device selector."""
    cel = selector.get("cel")
    if cel is None:
        return [required(f"{field}.cel")]
    expression = cel.get("expression", "")
    if len(expression.encode()) > MAX_EXPRESSION:
        return [too_long(f"{field}.cel.expression", MAX_EXPRESSION)]
    return device_selector(expression, f"{field}.cel.expression")


def parameters(given: Any, field: str, most: int = MAX_PARAMETERS) -> list[Cause]:
    """Check the parameters of a driver: a JSON object of limited size."""
    if given is None:
        return [required(field)]
    if len(go_json(given).encode()) > most:
        return [too_long(field, most)]
    return [] if isinstance(given, dict) else [invalid_value(field, "<value omitted>", "must be a valid JSON object")]


def configuration(config: Object, field: str) -> list[Cause]:
    """Check the parameters of a device configuration."""
    opaque, path = config.get("opaque"), f"{field}.opaque"
    return [required(path)] if opaque is None else parameters(opaque.get("parameters"), f"{path}.parameters")
