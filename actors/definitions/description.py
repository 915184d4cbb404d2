"""Description: the labels and fields of stored objects, with the selectable fields of custom resources.

A definition may get selectable fields, or defaults of such fields, while its objects exist. Their view then describes
them anew.
"""

from __future__ import annotations

from typing import Final

from kubechronicle.api.custom.served import SelectableField, getter
from kubechronicle.api.selectors import field_selectors
from kubechronicle.api.selectors.selectable_fields import SELECTABLE
from kubechronicle.eventlog.entries import Describe


class Description:
    """The functions ``describe`` and ``plain`` of field_selectors.py, for all resources that are served."""

    def __init__(self) -> None:
        self._chosen: dict[str, frozenset[SelectableField]] = {}
        self._fields = dict(SELECTABLE)
        self.describe: Final[Describe] = field_selectors.describer(self._fields)

    def plain(self, resource: str) -> bool:
        """Return True if the resource has no selectable fields but name and namespace."""
        return resource not in self._fields

    def choose(self, resource: str, fields: frozenset[SelectableField]) -> bool:
        """Set the selectable fields of a custom resource. Return whether they have changed."""
        if fields == self._chosen.get(resource, frozenset()):
            return False
        if fields:
            self._chosen[resource] = fields
            self._fields[resource] = tuple(getter(field) for field in sorted(fields))
        else:
            del self._chosen[resource], self._fields[resource]
        return True
