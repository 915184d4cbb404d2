"""Defaults of all built-in kinds, merged from the groups.

The order of the groups does not matter: each definition has one entry. A constant value fills a field that is absent or
an empty string; if the field is a pointer in Go, only one that is absent. A function changes its object in place. It
runs after the object's constant values are filled in and before its nested objects get their defaults.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from kubechronicle.api.builtin import kinds
from kubechronicle.api.builtin.apiextensions import defaults as apiextensions
from kubechronicle.api.builtin.autoscaling import defaults as autoscaling
from kubechronicle.api.builtin.discovery import defaults as discovery
from kubechronicle.api.builtin.flowcontrol import defaults as flowcontrol
from kubechronicle.api.builtin.networking import defaults as networking
from kubechronicle.api.builtin.rbac import defaults as rbac
from kubechronicle.api.builtin.resource import defaults as resource
from kubechronicle.api.builtin.scheduling import defaults as scheduling
from kubechronicle.api.builtin.storage import defaults as storage
from kubechronicle.api.values.objects import Object

VALUES: Final[Mapping[str, Mapping[str, Any]]] = {
    **kinds.DEFAULT_VALUES,
    **autoscaling.VALUES,
    **discovery.VALUES,
    **networking.VALUES,
    **rbac.VALUES,
    **resource.VALUES,
    **scheduling.VALUES,
    **storage.VALUES,
}
"""Definition -> field -> constant default."""

RESOURCE_LISTS: Final = kinds.RESOURCE_LISTS
"""Definition -> fields with amounts that are rounded up to a thousandth, after the function of the definition."""

FUNCTIONS: Final[Mapping[str, Callable[[Object], None]]] = {
    **kinds.DEFAULT_FUNCTIONS,
    **apiextensions.FUNCTIONS,
    **autoscaling.FUNCTIONS,
    **flowcontrol.FUNCTIONS,
    **networking.FUNCTIONS,
    **rbac.FUNCTIONS,
    **resource.FUNCTIONS,
}
"""Definition -> function that sets the fields which depend on other fields."""
