"""Kinds of custom resources whose definitions were deleted. History still has their objects."""

from __future__ import annotations

from typing import Final

from kubechronicle.api.values.objects import ReadOnlyObject
from kubechronicle.ops.client.client import Client
from kubechronicle.ops.client.kinds import Kind, Kinds
from kubechronicle.ops.client.revision_reader import API, RevisionQuery, Scope, read_revisions

DEFINITIONS: Final = "customresourcedefinitions.apiextensions.k8s.io"
MOST: Final = 500
"""Deletions that are read, newest first."""


def past_kinds(client: Client) -> Kinds:
    """Return the kinds of the deleted definitions, the last deleted one first. None if the user may not read them."""
    fields = (("object.resource", DEFINITIONS), ("operation", "Delete"))
    query = RevisionQuery([Scope(f"{API}/clusterrevisions", fields, optional=True)], limit=MOST)
    last = (revision.get("before") for revision in read_revisions(client, query))  # none if it was erased
    return Kinds([_kind(definition["spec"]) for definition in last if definition is not None])


def _kind(spec: ReadOnlyObject) -> Kind:
    names = spec["names"]
    served = [version["name"] for version in spec["versions"] if version["served"]]
    return Kind(
        spec["group"],
        served[0] if served else spec["versions"][0]["name"],
        names["plural"],
        names.get("singular") or "",
        names["kind"],
        spec["scope"] == "Namespaced",
        frozenset(("get", "list")),
        tuple(names.get("shortNames") or ()),
        tuple(names.get("categories") or ()),
    )
