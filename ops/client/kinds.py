"""The kinds of a server, from its discovery documents, and their names: deploy, Deployment, deployments.apps.

A name is resolved as kubectl does (k8s.io/apimachinery RESTMapper). It is the plural, singular, short name or kind, in
either case; the group, or version and group, may follow after a dot. The first kind in the server's order wins.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Final, NamedTuple
from urllib.parse import quote

from kubechronicle.api.registry.groups import HISTORY
from kubechronicle.api.values.objects import Object
from kubechronicle.ops.client.client import Client
from kubechronicle.ops.errors import OperatorError

AGGREGATED: Final = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
NOW: Final = "-0s"
"""The present as a moment of history."""


class Kind(NamedTuple):
    """One kind, from discovery. ``plural``: the resource's name in paths."""

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
    def full_name(self) -> str:
        """Resource and group: ``deployments.apps``, ``pods``."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    def object_name(self, name: str) -> str:
        """Return an object's name as kubectl writes it: ``deployment.apps/web``."""
        return f"{self.singular or self.plural}{f'.{self.group}' if self.group else ''}/{name}"

    def path(self, namespace: str = "", name: str = "") -> str:
        root = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        inside = f"/namespaces/{quote(namespace, safe='')}" if self.namespaced and namespace else ""
        return f"{root}{inside}/{self.plural}" + (f"/{quote(name, safe='')}" if name else "")


class Kinds:
    """All kinds of a server, each in the version it prefers.

    ``own``: returns (group, plural) of those whose objects the server itself stores; None: all of them.
    """

    def __init__(self, kinds: Sequence[Kind], own: Callable[[], frozenset[tuple[str, str]]] | None = None) -> None:
        self.all = kinds
        self._own = cache(own) if own is not None else None

    @classmethod
    def discover(cls, client: Client) -> Kinds:
        """Read the discovery documents. ApiError."""
        documents = [client.get(root, accept=f"{AGGREGATED},application/json") for root in ("/api", "/apis")]

        def own() -> frozenset[tuple[str, str]]:
            # Extension API servers have no past here, so the discovery of history omits them. A client in the past
            # stays at its moment: a definition of then may be deleted since.
            past = client if client.moment else client.at(NOW)
            document = past.get("/apis", accept=f"{AGGREGATED},application/json")
            return frozenset((kind.group, kind.plural) for kind in _kinds(document))

        return cls([kind for document in documents for kind in _kinds(document)], own)

    def stored(self) -> list[Kind]:
        """Return the kinds whose objects this server stores, and that can be listed, created and deleted."""
        found = [
            kind for kind in self.all if kind.verbs >= {"list", "get", "create", "delete"} and kind.group != HISTORY
        ]
        if self._own is None:
            return found
        own = self._own()
        return [kind for kind in found if not kind.group or (kind.group, kind.plural) in own]

    def find(self, text: str) -> Kind:
        """Return the kind of that name. Raises OperatorError, with a similar name."""
        name, _, group = text.lower().partition(".")
        for kind in self.all:
            if name in _names(kind) and _is_group(kind, group):
                return kind
        known = {name for kind in self.all for name in (*_names(kind), kind.full_name)}
        import difflib

        similar = difflib.get_close_matches(text.lower(), sorted(known), n=1)
        hint = f"; did you mean {similar[0]}?" if similar else "; `kubectl api-resources` lists all kinds"
        raise OperatorError(f"the server has no kind {text!r}{hint}")

    def of_object(self, api_version: str, kind: str) -> Kind | None:
        """Return the kind of an object, possibly in another version; None if the server has none."""
        group = api_version.rpartition("/")[0]
        return next((each for each in self.all if (each.group, each.kind) == (group, kind)), None)

    def of_resource(self, group: str, plural: str) -> Kind | None:
        return next((each for each in self.all if (each.group, each.plural) == (group, plural)), None)


def _names(kind: Kind) -> tuple[str, ...]:
    return (kind.plural, kind.singular, kind.kind.lower(), *kind.short_names)


def _is_group(kind: Kind, text: str) -> bool:
    if not text:
        return True
    return kind.group == text or f"{kind.version}.{kind.group}".rstrip(".") == text or kind.group.startswith(f"{text}.")


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
