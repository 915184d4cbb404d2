"""Definitions of the kinds of our own that are stored, in the form of the published ones (types.py)."""

from __future__ import annotations

from typing import Any, Final

PACKAGE: Final = "dev.kubechronicle.history.v1"
_GROUP_VERSION: Final = {"group": "history.kubechronicle.dev", "version": "v1"}
_META: Final = "io.k8s.apimachinery.pkg.apis.meta.v1."


def _text(description: str, **more: Any) -> dict[str, Any]:
    return {"type": "string", "description": description, **more}


_HEAD: Final = {
    "apiVersion": _text("The version of the object's form."),
    "kind": _text("The kind of the object."),
}

DEFINITIONS: Final[dict[str, dict[str, Any]]] = {
    f"{PACKAGE}.Tag": {
        "type": "object",
        "description": "Tag is a name for a moment of history: tag:NAME stands wherever a moment does. It does not "
        "keep the history of that moment from being dropped.",
        "properties": {
            **_HEAD,
            "metadata": {"$ref": f"#/$defs/{_META}ObjectMeta"},
            "spec": {
                "$ref": f"#/$defs/{PACKAGE}.TagSpec",
                "description": "The moment. It never changes.",
            },
        },
        "x-kubernetes-group-version-kind": [{**_GROUP_VERSION, "kind": "Tag"}],
    },
    f"{PACKAGE}.TagList": {
        "type": "object",
        "description": "TagList is a list of Tags.",
        "required": ["items"],
        "properties": {
            **_HEAD,
            "items": {"type": "array", "items": {"$ref": f"#/$defs/{PACKAGE}.Tag"}},
            "metadata": {"$ref": f"#/$defs/{_META}ListMeta"},
        },
        "x-kubernetes-group-version-kind": [{**_GROUP_VERSION, "kind": "TagList"}],
    },
    f"{PACKAGE}.Branch": {
        "type": "object",
        "description": "Branch is a copy of the cluster as of a revision, in which changes can be tried. Its API is "
        "served below /branch/NAME/. Nothing that is changed there reaches the cluster.",
        "properties": {
            **_HEAD,
            "metadata": {"$ref": f"#/$defs/{_META}ObjectMeta"},
            "spec": {
                "$ref": f"#/$defs/{PACKAGE}.BranchSpec",
                "description": "The beginning of the branch. It never changes.",
            },
        },
        "x-kubernetes-group-version-kind": [{**_GROUP_VERSION, "kind": "Branch"}],
    },
    f"{PACKAGE}.BranchList": {
        "type": "object",
        "description": "BranchList is a list of Branches.",
        "required": ["items"],
        "properties": {
            **_HEAD,
            "items": {"type": "array", "items": {"$ref": f"#/$defs/{PACKAGE}.Branch"}},
            "metadata": {"$ref": f"#/$defs/{_META}ListMeta"},
        },
        "x-kubernetes-group-version-kind": [{**_GROUP_VERSION, "kind": "BranchList"}],
    },
    f"{PACKAGE}.BranchSpec": {
        "type": "object",
        "description": "BranchSpec is the beginning of a branch.",
        "properties": {
            "revision": {
                "type": "integer",
                "format": "int64",
                "description": "The revision of the log whose state the branch begins with. Default: the newest one.",
            },
        },
    },
    f"{PACKAGE}.TagSpec": {
        "type": "object",
        "description": "TagSpec is a moment of history.",
        "properties": {
            "moment": _text(
                "The moment as it was asked for at the creation: 2h, a time, a revision. Without it, and without a "
                "revision, the moment of the creation."
            ),
            "reason": _text("The reason for the tag."),
            "revision": _text(
                "The newest revision at the moment. The server finds it, unless the creator names it; then moment is "
                "not looked at."
            ),
            "time": _text("The moment in time: as asked for, or the commit time of the revision. Set by the server."),
            "user": _text("The user that created the tag. Set by the server."),
        },
    },
}
