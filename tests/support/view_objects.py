"""Objects in views, applied as records, and in a dictionary for lookups by key."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import count
from typing import Any

import orjson

from kubechronicle.api.selectors.field_selectors import describe
from kubechronicle.eventlog.records import Key, Operation, Record
from kubechronicle.eventlog.views.views import Views

Object = dict[str, Any]


class ViewObjects:
    """``views`` and ``objects`` hold the same objects."""

    def __init__(self) -> None:
        self.views = Views(describe)
        self.objects: dict[Key, Object] = {}
        self._revisions: dict[Key, int] = {}
        self._next = count(1)

    def put(self, resource: str, namespace: str, name: str, obj: Object) -> None:
        """Create or replace an object. Name and namespace are added to the metadata of ``obj``."""
        metadata = {**obj.get("metadata", {}), "name": name, **({"namespace": namespace} if namespace else {})}
        key = Key(resource, namespace, name)
        operation = Operation.UPDATE if key in self.objects else Operation.CREATE
        self._apply(key, operation, {"apiVersion": "v1", "kind": "X", **obj, "metadata": metadata})

    def delete(self, key: Key) -> None:
        self._apply(key, Operation.DELETE, self.objects[key])

    def forget_history(self) -> None:
        """Drop all recent events from memory."""
        for view in self.views:
            view.window.reset(self.views.applied)

    def _apply(self, key: Key, operation: Operation, obj: Object) -> None:
        revision = next(self._next)
        self.views.apply(
            [
                Record(
                    revision=revision,
                    key=key,
                    uid="u",
                    create_revision=1,
                    version=1,
                    previous_revision=self._revisions.get(key, 0),
                    operation=operation,
                    body=orjson.dumps(obj),
                    committed_at=datetime(2026, 1, 1, tzinfo=UTC),
                )
            ]
        )
        if operation is Operation.DELETE:
            del self.objects[key], self._revisions[key]
        else:
            self.objects[key], self._revisions[key] = obj, revision
