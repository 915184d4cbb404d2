"""The libraries of the base environment: cel-go's standard library, and the functions that Kubernetes v1.36 adds.

Source: k8s.io/apiserver/pkg/cel/environment/base.go, which also says which version introduced each library.
"""

from __future__ import annotations

from typing import Final

from kubechronicle.api.cel.declarations import Library
from kubechronicle.api.cel.library import (
    authorization,
    cidr,
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
