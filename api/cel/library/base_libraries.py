"""The libraries of the base environment: cel-go's standard library, and the functions that Kubernetes v1.36 adds.

Source: k8s.io/apiserver/pkg/cel/environment/base.go, which also says which version introduced each library.
"""

from __future__ import annotations

from typing import Final

from kubechronicle.api.cel.declarations import Library
from kubechronicle.api.cel.library import (
    authorization,
    cidr,
    costs,
    ip,
    list_aggregates,
    list_transforms,
    named_formats,
    optionals,
    quantity,
    regex,
    semver,
    sets,
    standard,
    strings,
    urls,
)
from kubechronicle.api.cel.overloads import Function, Overload
from kubechronicle.api.cel.types import DYN, STRING, object_type

# -- json patch --------------------------------------------------------------------------------------------------------
#
# ``JSONPatch{op: …, path: …, value: …}`` and ``jsonpatch.escapeKey()``, for expressions of patches (RFC 6902).

JSON_PATCH: Final = object_type("JSONPatch", {"op": STRING, "path": STRING, "from": STRING, "value": DYN})


def escape_key(key: str) -> str:
    """Return a key escaped for a JSON pointer (RFC 6901)."""
    return key.replace("~", "~0").replace("/", "~1")


LIBRARY: Final = Library(
    "kubernetes.jsonpatch",
    0,
    (
        Function(
            "jsonpatch.escapeKey",
            (Overload("string_jsonpatch_escapeKey_string", (STRING,), STRING, escape_key, cost=costs.traversal()),),
        ),
    ),
    types=(JSON_PATCH,),
)


# -- base libraries ----------------------------------------------------------------------------------------------------

PARSING: Final = standard.PARSING

BASE_LIBRARIES: Final[tuple[Library, ...]] = (
    standard.LIBRARY,
    optionals.LIBRARY,
    optionals.TWO_VARIABLES,
    urls.LIBRARY.weighing(PARSING),
    regex.LIBRARY.weighing(PARSING),
    list_aggregates.LIBRARY,
    authorization.LIBRARY.weighing(PARSING),
    quantity.LIBRARY.weighing(PARSING),
    strings.LIBRARY,
    sets.LIBRARY,
    ip.LIBRARY.weighing(PARSING),
    cidr.LIBRARY.weighing(PARSING),
    named_formats.LIBRARY.weighing(PARSING),
    semver.LIBRARY.weighing(PARSING),
    list_transforms.LIBRARY,
)
"""The libraries that every expression may use. Environments of JSON patches add ``json_patch.LIBRARY``."""
