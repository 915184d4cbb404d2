"""The state of a namespace or the cluster at a moment: all objects that can be created and deleted."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from kubechronicle.api.meta.owners import Key
from kubechronicle.api.values.objects import Object
from kubechronicle.ops.client.client import ApiError, Client
from kubechronicle.ops.client.kinds import Kind, Kinds
from kubechronicle.ops.client.output import Progress

# Resources that serve the objects of another one. They are not listed.
ALIASES: Final = frozenset({("events.k8s.io", "events"), ("extensions", "ingresses")})
# Resources that describe the present and are renewed all the time.
TRANSIENT: Final = frozenset({("", "events"), ("coordination.k8s.io", "leases"), ("", "componentstatuses")})

CONCURRENT_LISTS: Final = 4


class ClusterState:
    """The objects at a moment.

    ``kinds``: the kinds of the objects by group and kind
    ``unread``: resources that could not be listed in full, with the reason
    """

    def __init__(self) -> None:
        self.objects: dict[Key, Object] = {}
        self.kinds: dict[tuple[str, str], Kind] = {}
        self.unread: dict[str, str] = {}

    def add(self, kind: Kind, obj: Object) -> None:
        self.objects[key_of(obj)] = obj
        self.kinds[kind.group, kind.kind] = kind


def key_of(obj: Object) -> Key:
    metadata = obj["metadata"]
    group = str(obj.get("apiVersion", "")).rpartition("/")[0]
    return (group, obj.get("kind", ""), metadata.get("namespace", ""), metadata["name"])


def _kinds_to_list(kinds: Kinds, *, namespaced_only: bool) -> list[Kind]:
    return [
        kind
        for kind in kinds.stored()
        if (kind.group, kind.plural) not in ALIASES | TRANSIENT and (kind.namespaced or not namespaced_only)
    ]


def read_state(client: Client, kinds: Kinds, namespaces: Sequence[str], *, label: str = "reading") -> ClusterState:
    """Read all objects in the namespaces, and the namespaces themselves; the whole cluster for no namespaces. ApiError.

    Resources that the user may not list are in ``unread``.
    """
    state = ClusterState()
    listed = _kinds_to_list(kinds, namespaced_only=bool(namespaces))
    lists = [(kind, namespace) for kind in listed for namespace in namespaces or [""]]
    from concurrent.futures import ThreadPoolExecutor  # imports logging; one object needs no threads

    with Progress(label, len(lists)) as progress, ThreadPoolExecutor(CONCURRENT_LISTS) as pool:
        for kind, result in pool.map(lambda each: (each[0], _list(client, each[0], each[1], state)), lists):
            progress.step(kind.full_name)
            if isinstance(result, str):
                state.unread[kind.full_name] = result
            else:
                for obj in result:
                    state.add(kind, obj)
    namespace_kind = kinds.of_resource("", "namespaces")
    for namespace in namespaces:
        if namespace_kind is not None:
            _get(client, namespace_kind, namespace, state)
    return state


def _list(client: Client, kind: Kind, namespace: str, state: ClusterState) -> list[Object] | str:
    """Return the objects of a kind, or the reason why the user may not list them.

    Add a warning to ``unread`` if the list omits erased objects.
    """
    type_meta = {"apiVersion": kind.api_version, "kind": kind.kind}
    client = client.replaced(omissions=[])
    try:
        objects = [{**item, **type_meta} for item in client.items(kind.path(namespace))]
        if client.omissions:
            state.unread[kind.full_name] = "; ".join(client.omissions)
        return objects
    except ApiError as error:
        if error.code not in (403, 404, 405):
            raise
        return error.message if error.code == 403 else []


def _get(client: Client, kind: Kind, name: str, state: ClusterState) -> None:
    try:
        obj = client.get_if(kind.path("", name))
    except ApiError as error:
        if error.code != 403:
            raise
        state.unread[kind.full_name] = error.message
        return
    if obj is not None:
        state.add(kind, obj)


def existing_namespaces(client: Client, kinds: Kinds, names: Iterable[str]) -> list[str]:
    kind = kinds.of_resource("", "namespaces")
    return [name for name in names if kind is not None and client.get_if(kind.path("", name)) is not None]
