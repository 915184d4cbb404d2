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
from kubechronicle.api.values.objects import Object

VALUES: Final[Mapping[str, Mapping[str, Any]]] = {
    **kinds.DEFAULT_VALUES,
}
"""Definition -> field -> constant default."""

RESOURCE_LISTS: Final = kinds.RESOURCE_LISTS
"""Definition -> fields with amounts that are rounded up to a thousandth, after the function of the definition."""

FUNCTIONS: Final[Mapping[str, Callable[[Object], None]]] = {
    **kinds.DEFAULT_FUNCTIONS,
    **apiextensions.FUNCTIONS,
}
"""Definition -> function that sets the fields which depend on other fields."""
