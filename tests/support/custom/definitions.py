"""CustomResourceDefinitions for tests."""

from __future__ import annotations

from typing import Any


def version(name: str = "v1", **members: Any) -> dict[str, Any]:
    """Return a served version whose objects may hold anything. v1 is the stored one."""
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    return {"name": name, "served": True, "storage": name == "v1", "schema": schema, **members}


def names(plural: str = "widgets", **more: Any) -> dict[str, Any]:
    """Return the names that belong to a plural: widgets, widget, Widget, WidgetList."""
    singular = plural.removesuffix("s")
    kind = singular.capitalize()
    return {"plural": plural, "singular": singular, "kind": kind, "listKind": f"{kind}List", **more}


def definition(
    *versions: dict[str, Any],
    group: str = "example.com",
    plural: str = "widgets",
    scope: str = "Namespaced",
    **more: Any,
) -> dict[str, Any]:
    """Return a definition as clients send it. ``more``: further names."""
    spec = {
        "group": group,
        "scope": scope,
        "names": names(plural, **more),
        "versions": list(versions) or [version()],
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": spec,
    }


def established(obj: dict[str, Any], *conditions: str, uid: str = "u") -> dict[str, Any]:
    """Return the definition with all names accepted, and these further conditions true."""
    status = {
        "acceptedNames": obj["spec"]["names"],
        "conditions": [{"type": kind, "status": "True"} for kind in ("NamesAccepted", "Established", *conditions)],
        "storedVersions": ["v1"],
    }
    return {**obj, "metadata": {**obj["metadata"], "uid": uid}, "status": status}
