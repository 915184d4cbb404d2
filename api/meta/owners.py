"""Owners in plans: dependents get the present uids of their owners, which a plan may create again.

An owner that was deleted and made again has another uid. A reference with the former one makes the garbage collector
delete the dependent, if it has no other owner. So references are compared by group, kind and name:

    owners_first(keys, …)       dependents behind the owners that the same plan creates
    owner_references(live, …)   the references of a present object, with those of then
    settle_owners(made, …)      the references of an object to create
    with_uids_of(one, other)    references for a comparison, in which uids do not count
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from kubechronicle.api.values.objects import Object

Key = tuple[str, str, str, str]  # group, kind, namespace, name


def owner_keys(found: Object) -> Iterator[Key]:
    """Yield the keys that the owners of an object may have: an owner is in its namespace, or in none."""
    metadata = found["metadata"]
    for reference in metadata.get("ownerReferences") or ():
        yield from keys_of(reference, str(metadata.get("namespace") or ""))


def keys_of(reference: Mapping[str, Any], namespace: str) -> Iterator[Key]:
    """Yield the keys that the owner of a reference may have."""
    group = str(reference.get("apiVersion", "")).rpartition("/")[0]
    for place in dict.fromkeys((namespace, "")):
        yield group, str(reference.get("kind")), place, str(reference.get("name"))


def owners_first(keys: Sequence[Key], objects: Mapping[Key, Object]) -> list[Key]:
    """Return the keys in their order, but each behind those of its owners among them."""
    among, placed = set(keys), dict[Key, None]()
    for first in keys:
        stack, begun = [first], {first}
        while stack:
            found = objects.get(stack[-1])
            owners = owner_keys(found) if found is not None else ()
            above = [key for key in owners if key in among and key not in placed and key not in begun]
            if above:
                begun.update(above)  # so that a circle of owners comes to an end
                stack += above
            else:
                placed.setdefault(stack.pop())
    return list(placed)


def owner_references(live: Object, then: Object, uid_of: Callable[[Mapping[str, Any]], str]) -> list[Object]:
    """Return the ownerReferences of a present object, and those of then which it lacks.

    ``uid_of``: returns the present uid of a reference's owner, or "": then the reference is as it is now. None is
    removed: the garbage collector deletes an object whose owners are all gone.
    """
    found = [dict(reference) for reference in live["metadata"].get("ownerReferences") or ()]
    for reference in then["metadata"].get("ownerReferences") or ():
        uid = uid_of(reference)
        present = next((each for each in found if same_owner(each, reference)), None)
        if present is None and uid:
            found.append({**reference, "uid": uid})
        elif present is not None and uid:
            present["uid"] = uid
    return found


def settle_owners(made: Object, uid_of: Callable[[Mapping[str, Any]], str]) -> list[str]:
    """Refer to the owners of an object for a POST by their present uids, and return the names of those that are gone.

    The garbage collector would delete an object whose owners are all gone.
    """
    present, gone = [], []
    for reference in made["metadata"].pop("ownerReferences", None) or ():
        if uid := uid_of(reference):
            present.append({**reference, "uid": uid})
        else:
            gone.append(f"{reference.get('kind')}/{reference.get('name')}")
    if present:
        made["metadata"]["ownerReferences"] = present
    return gone


def with_uids_of(references: Any, others: Any) -> Any:
    """Return ownerReferences with the uids that others have for the same owners: the owners may be created again."""
    if not isinstance(references, list) or not isinstance(others, list):
        return references
    return [
        {**each, "uid": next((other["uid"] for other in others if same_owner(each, other)), each.get("uid"))}
        for each in references
    ]


def same_owner(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Tell whether two references name the same owner, whichever uid it had."""
    return next(keys_of(one, "")) == next(keys_of(other, ""))
