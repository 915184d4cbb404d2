"""Cells of a table of Revisions: the user, the object, and a summary of the change, on one line each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kubechronicle.api.history.differences import shown_value
from kubechronicle.api.values.printable import printable


def changed_cell(revision: Mapping[str, Any]) -> str:
    """Return the last column of a table: a summary of the change."""
    if revision.get("redacted"):
        return "<no right to read>"
    if revision.get("erased"):
        return "<erased>"
    if revision["operation"] != "Update":
        return f"<{revision['operation'].lower()}d>"
    if revision.get("beforeErased"):
        return "<previous state erased>"
    return printable(revision.get("summary") or "<bookkeeping only>")


def object_cell(revision: Mapping[str, Any]) -> str:
    """Return TYPE/NAME as kubectl writes it."""
    of = revision["object"]
    group = of.get("apiVersion", "").rpartition("/")[0]
    kind = of.get("resource", "")
    return printable(f"{kind}.{group}/{of.get('name', '')}" if group else f"{kind}/{of.get('name', '')}")


def user_cell(revision: Mapping[str, Any]) -> str:
    """Return the user, with the impersonator if there is one."""
    who = revision["who"]
    name, impersonator = who.get("username", ""), who.get("impersonator", "")
    return shown_value(f"{name} (by {impersonator})" if impersonator else name) if name else "<unknown>"
