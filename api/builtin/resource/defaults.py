"""Defaults of the resource group, merged from the kinds' folders."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from kubechronicle.api.builtin.resource.resourceclaim import defaults as resourceclaim
from kubechronicle.api.values.objects import Object

VALUES: Final[Mapping[str, Mapping[str, Any]]] = {
    **resourceclaim.VALUES,
}

FUNCTIONS: Final[Mapping[str, Callable[[Object], None]]] = {
    **resourceclaim.FUNCTIONS,
}
