"""The kinds a server has, from its discovery documents, and how people call them: deploy, Deployment, deployments.apps.

Names are found as kubectl finds them (k8s.io/apimachinery RESTMapper): in either case, plural, singular, short or kind,
with the group or the version and group behind a dot; of several the first the server lists.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote

from kubechronicle.api.registry.resources import HISTORY
from kubechronicle.api.values.objects import Object
from kubechronicle.ops.client.client import Client
from kubechronicle.ops.errors import OperatorError

AGGREGATED: Final = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"


@dataclass(frozen=True, slots=True)
class Kind:
    group: str
    version: str
    plural: str
    singular: str
    kind: str
    namespaced: bool
    verbs: frozenset[str]
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()

    @property
    def full(self) -> str:
        """deployments.apps"""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    def titled(self, name: str) -> str:
        """deployment.apps/web, as kubectl writes it."""
        return f"{self.singular or self.plural}{f'.{self.group}' if self.group else ''}/{name}"

    def path(self, namespace: str = "", name: str = "") -> str:
        root = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        inside = f"/namespaces/{quote(namespace, safe='')}" if self.namespaced and namespace else ""
        return f"{root}{inside}/{self.plural}" + (f"/{quote(name, safe='')}" if name else "")


class Kinds:
    """All kinds, each in the version its server prefers."""

    def __init__(self, found: Sequence[Kind]) -> None:
        self.all = found

    @classmethod
    def of(cls, client: Client) -> Kinds:
        documents = [client.get(root, accept=f"{AGGREGATED},application/json") for root in ("/api", "/apis")]
        return cls([kind for document in documents for kind in _kinds(document)])

    def stored(self) -> list[Kind]:
        """Those whose objects can be listed, made and deleted."""
        return [
            kind for kind in self.all if kind.verbs >= {"list", "get", "create", "delete"} and kind.group != HISTORY
        ]

    def named(self, text: str) -> Kind:
        """OperatorError, with what may have been meant."""
        wanted, _, rest = text.lower().partition(".")
        for kind in self.all:
            if wanted in _names(kind) and _is_group(kind, rest):
                return kind
        known = {name for kind in self.all for name in (*_names(kind), kind.full)}
        near = difflib.get_close_matches(text.lower(), sorted(known), n=1)
        meant = f"; did you mean {near[0]}?" if near else "; `kubectl api-resources` lists them"
        raise OperatorError(f"the server has no kind {text!r}{meant}")

    def of_object(self, api_version: str, kind: str) -> Kind | None:
        """The kind of an object, perhaps in another version."""
        group = api_version.rpartition("/")[0]
        return next((each for each in self.all if (each.group, each.kind) == (group, kind)), None)

    def of_resource(self, group: str, plural: str) -> Kind | None:
        return next((each for each in self.all if (each.group, each.plural) == (group, plural)), None)


def _names(kind: Kind) -> tuple[str, ...]:
    return (kind.plural, kind.singular, kind.kind.lower(), *kind.short_names)


def _is_group(kind: Kind, rest: str) -> bool:
    if not rest:
        return True
    return kind.group == rest or f"{kind.version}.{kind.group}".rstrip(".") == rest or kind.group.startswith(f"{rest}.")


def _kinds(document: Object) -> Iterator[Kind]:
    for group in document.get("items") or []:
        seen: set[str] = set()
        for version in group.get("versions") or []:
            for entry in version.get("resources") or []:
                plural = entry["resource"]
                if plural in seen:
                    continue
                seen.add(plural)
                yield Kind(
                    (group.get("metadata") or {}).get("name", ""),
                    version["version"],
                    plural,
                    entry.get("singularResource") or "",
                    (entry.get("responseKind") or {}).get("kind", ""),
                    entry.get("scope") == "Namespaced",
                    frozenset(entry.get("verbs") or ()),
                    tuple(entry.get("shortNames") or ()),
                    tuple(entry.get("categories") or ()),
                )
