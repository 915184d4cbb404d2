"""The garbage collector's changes of objects: owner references and finalizers. Pure."""

from __future__ import annotations

from kubechronicle.actors.loops.garbage.graph import Reference, reference_of
from kubechronicle.api.values.objects import Object


def without_owners(obj: Object, *, gone: frozenset[Reference]) -> Object:
    """Return the object without these references."""
    return _with_owners(
        obj, [owner for owner in obj["metadata"].get("ownerReferences") or () if reference_of(owner) not in gone]
    )


def without_blocking(obj: Object) -> Object:
    """Return the object with references that no longer block their owners' deletion."""
    owners = obj["metadata"].get("ownerReferences") or ()
    return _with_owners(
        obj, [{**owner, "blockOwnerDeletion": False} if owner.get("blockOwnerDeletion") else owner for owner in owners]
    )


def _with_owners(obj: Object, owners: list[Object]) -> Object:
    metadata = {**obj["metadata"], "ownerReferences": owners}
    if not owners:
        del metadata["ownerReferences"]
    return {**obj, "metadata": metadata}


def without_finalizer(obj: Object, *, finalizer: str) -> Object:
    """Return the object without the finalizer."""
    metadata = obj["metadata"]
    finalizers = [one for one in metadata.get("finalizers") or () if one != finalizer]
    kept = {name: value for name, value in metadata.items() if name != "finalizers"}
    return {**obj, "metadata": {**kept, "finalizers": finalizers} if finalizers else kept}
