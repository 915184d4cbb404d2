"""The libraries of the base environment: cel-go's standard library, and the functions that Kubernetes v1.36 adds.

Source: k8s.io/apiserver/pkg/cel/environment/base.go, which also says which version introduced each library.
"""

from __future__ import annotations

from typing import Final

from kubechronicle.api.cel.declarations import Library
from kubechronicle.api.cel.library import (
    addresses,
    authorization,
    costs,
    lists,
    named_formats,
    optionals,
    quantity,
    semver,
    standard,
    strings,
    urls,
)
from kubechronicle.api.cel.types import DYN, STRING, Function, Overload, object_type

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
    strings.REGEX.weighing(PARSING),
    lists.AGGREGATES,
    authorization.LIBRARY.weighing(PARSING),
    quantity.LIBRARY.weighing(PARSING),
    strings.LIBRARY,
    lists.SETS,
    addresses.IP_LIBRARY.weighing(PARSING),
    addresses.CIDR_LIBRARY.weighing(PARSING),
    named_formats.LIBRARY.weighing(PARSING),
    semver.LIBRARY.weighing(PARSING),
    lists.TRANSFORMS,
)
"""The libraries that every expression may use. Environments of JSON patches add ``json_patch.LIBRARY``."""
