"""Destinations of feeds: what they have in common.

A destination gets batches in order, one after the other. Each is delivered when the destination has acknowledged all of
it; otherwise it is sent again as a whole. So every change arrives at least once, and a repetition begins at an earlier
change: a consumer that remembers the highest revision skips it.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any, Final, Protocol

import orjson

from kubechronicle.api.values.objects import Object
from kubechronicle.ops.errors import OperatorError

SOURCE: Final = "kubechronicle"
"""The source of CloudEvents, unless the settings name another one."""


class Unavailable(Exception):
    """Something does not answer for now: it is asked again. ``after``: seconds, if the other side names them."""

    def __init__(self, message: str, after: float = 0.0) -> None:
        super().__init__(message)
        self.after = after


class Sink(Protocol):
    """A destination."""

    def send(self, changes: Sequence[Object]) -> None:
        """Deliver changes, and return when they are acknowledged. Unavailable; OperatorError: it will never work."""

    def close(self) -> None: ...


def load_client(module: str, extra: str) -> Any:
    """Import the client of a broker. OperatorError: it is not installed."""
    try:
        return importlib.import_module(module)
    except ImportError:
        raise OperatorError(f"the client for {extra} is not installed: pip install 'kubechronicle[{extra}]'") from None


def encoded(change: Object) -> bytes:
    """Return a change as JSON on one line."""
    return orjson.dumps(change)


def revision_of(change: Object) -> str:
    return str(change["metadata"]["name"])


def object_key(change: Object) -> str:
    """Return the identity of the changed object: ``shop/deployments.apps/web``."""
    of = change["object"]
    group = str(of.get("apiVersion", "")).rpartition("/")[0]
    resource = f"{of['resource']}.{group}" if group else str(of["resource"])
    return "/".join(filter(None, (of.get("namespace", ""), resource, of["name"])))


def attributes(change: Object, source: str) -> dict[str, str]:
    """Return the attributes of a CloudEvent (CloudEvents 1.0.2 §3.1) about a change."""
    return {
        "specversion": "1.0",
        "id": revision_of(change),
        "source": source,
        "type": f"dev.kubechronicle.history.{change['operation'].lower()}",
        "subject": object_key(change),
        "time": str(change["time"]),
        "datacontenttype": "application/json",
    }
