"""Description: the labels and fields of stored objects, with the selectable fields of custom resources.

A definition may get selectable fields while its objects exist. Their view then describes them anew.
"""

from __future__ import annotations

from typing import Final

from kubechronicle.api.selectors import field_selectors
from kubechronicle.api.selectors.selectable_fields import SELECTABLE
from kubechronicle.eventlog.entries import Describe


class Description:
    """The functions ``describe`` and ``plain`` of field_selectors.py, for all resources that are served."""

    def __init__(self) -> None:
        self._fields = dict(SELECTABLE)
        self.describe: Final[Describe] = field_selectors.describer(self._fields)

    def plain(self, resource: str) -> bool:
        """Return True if the resource has no selectable fields but name and namespace."""
        return resource not in self._fields

    def choose(self, resource: str, names: frozenset[str]) -> bool:
        """Set the selectable fields of a custom resource. Return whether they have changed."""
        if names == frozenset(name for name, _ in self._fields.get(resource, ())):
            return False
        if names:
            self._fields[resource] = field_selectors.custom_fields(sorted(names))
        else:
            del self._fields[resource]
        return True
