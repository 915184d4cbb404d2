"""What there is in a namespace, or the cluster, at a moment: all objects that can be made and deleted."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Final

from kubechronicle.api.values.objects import Object
from kubechronicle.ops.client.client import ApiError, Client
from kubechronicle.ops.client.kinds import Kind, Kinds
from kubechronicle.ops.client.output import Progress

# The same objects under two names: those of the other are left out.
TWICE: Final = {("events.k8s.io", "events"): ("", "events"), ("extensions", "ingresses"): ("networking.k8s.io", "")}
# What tells of the present and is renewed without end.
FLEETING: Final = frozenset({("", "events"), ("coordination.k8s.io", "leases"), ("", "componentstatuses")})

# Lists asked for at a time.
AT_ONCE: Final = 4

Key = tuple[str, str, str, str]  # group, kind, namespace, name


@dataclass(slots=True)
class State:
    """``objects`` by key; ``kinds``: of those. ``unread``: what could not be listed, or not as a whole, and why."""

    objects: dict[Key, Object] = field(default_factory=dict)
    kinds: dict[tuple[str, str], Kind] = field(default_factory=dict)
    unread: dict[str, str] = field(default_factory=dict)

    def add(self, kind: Kind, found: Object) -> None:
        self.objects[key_of(found)] = found
        self.kinds[kind.group, kind.kind] = kind


def key_of(found: Object) -> Key:
    metadata = found["metadata"]
    group = str(found.get("apiVersion", "")).rpartition("/")[0]
    return (group, found.get("kind", ""), metadata.get("namespace", ""), metadata["name"])


def wanted_kinds(kinds: Kinds, *, namespaced: bool | None = None, fleeting: bool = False) -> list[Kind]:
    """Each stored kind once. ``namespaced`` None: also cluster-scoped ones."""
    return [
        kind
        for kind in kinds.stored()
        if (kind.group, kind.plural) not in TWICE
        and (namespaced is None or kind.namespaced is namespaced)
        and (fleeting or (kind.group, kind.plural) not in FLEETING)
    ]


def read(
    client: Client, kinds: Kinds, namespaces: Sequence[str], *, fleeting: bool = False, what: str = "reading"
) -> State:
    """Everything in the namespaces and those themselves; the whole cluster for none. What one may not list is told in
    ``unread``. ApiError."""
    state = State()
    listed = wanted_kinds(kinds, namespaced=True if namespaces else None, fleeting=fleeting)
    lists = [(kind, namespace) for kind in listed for namespace in namespaces or [""]]
    with Progress(what, len(lists)) as progress, ThreadPoolExecutor(AT_ONCE) as pool:
        for kind, found in pool.map(lambda each: (each[0], _listed(client, each[0], each[1], state)), lists):
            progress.step(kind.full)
            if isinstance(found, str):
                state.unread[kind.full] = found
            else:
                for each in found:
                    state.add(kind, each)
    itself = kinds.of_resource("", "namespaces")
    for namespace in namespaces:
        if itself is not None:
            _get(client, itself, namespace, state)
    return state


def _listed(client: Client, kind: Kind, namespace: str, state: State) -> list[Object] | str:
    """The objects of a kind, or why one may not list them; of what was erased it is told in ``unread``."""
    named = {"apiVersion": kind.api_version, "kind": kind.kind}
    asking = replace(client, left_out=[])
    try:
        found = [{**found, **named} for found in asking.items(kind.path(namespace))]
        if asking.left_out:
            state.unread[kind.full] = "; ".join(asking.left_out)
        return found
    except ApiError as error:
        if error.code not in (403, 404, 405):
            raise
        return error.message if error.code == 403 else []


def _get(client: Client, kind: Kind, name: str, state: State) -> None:
    try:
        found = client.get_if(kind.path("", name))
    except ApiError as error:
        if error.code != 403:
            raise
        state.unread[kind.full] = error.message
        return
    if found is not None:
        state.add(kind, found)


def existing(client: Client, kinds: Kinds, names: Iterable[str]) -> list[str]:
    """Of namespaces those that there are."""
    itself = kinds.of_resource("", "namespaces")
    return [name for name in names if itself is not None and client.get_if(itself.path("", name)) is not None]
