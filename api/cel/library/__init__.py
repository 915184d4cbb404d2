"""The function libraries of CEL that Kubernetes v1.36 offers, each a table ``LIBRARY`` and the functions it names.

Source: k8s.io/apiserver/pkg/cel/environment/base.go, which says since when each is there.
"""

from __future__ import annotations

from typing import Final

from kubechronicle.api.cel.declarations import Library
from kubechronicle.api.cel.library import (
    authorization,
    cidr,
    ip,
    lists,
    lists_extended,
    named_formats,
    quantity,
    regex,
    semver,
    sets,
    strings,
    urls,
)

LIBRARIES: Final[tuple[Library, ...]] = (
    urls.LIBRARY,
    regex.LIBRARY,
    lists.LIBRARY,
    authorization.LIBRARY,
    quantity.LIBRARY,
    strings.LIBRARY,
    sets.LIBRARY,
    ip.LIBRARY,
    cidr.LIBRARY,
    named_formats.LIBRARY,
    semver.LIBRARY,
    lists_extended.LIBRARY,
)
"""What every environment of Kubernetes offers. Expressions that give patches have ``json_patch.LIBRARY`` besides."""
