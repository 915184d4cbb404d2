"""The end of the log for ops/bench/questions: changes of bindings, and many updates of one ConfigMap.

    1,600 changes of 80 bindings of one namespace and of the cluster, in turn: made, changed twice, deleted
    10,000 updates of one ConfigMap of 1.6 KB

The user uma may delete pods from the 300th of these changes to the 1,300th, by one binding. All developers may read
them, by half of the other bindings. Each of the rest lets some user delete pods.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import orjson

from kubechronicle.eventlog.postgres import rows, sql
from kubechronicle.eventlog.postgres.session import PostgresSession
from kubechronicle.eventlog.records import Batch, Change, Key, Operation, Transaction, Who

GROUP: Final = "rbac.authorization.k8s.io"
ROLES: Final = f"clusterroles.{GROUP}"
BINDINGS: Final = (f"clusterrolebindings.{GROUP}", f"rolebindings.{GROUP}")
NAMESPACE: Final = "team-001"
BINDING_CHANGES: Final = 1600
BINDINGS_IN_TURN: Final = 80
GIVEN: Final = 300
TAKEN: Final = 1300
UPDATES: Final = 10_000
SIZE: Final = 1600
COUNTED: Final = Key("configmaps", NAMESPACE, "counted")

_FIRST_BINDING: Final = """
select min(revision) from kubechronicle.log where resource = any ($1::text[]) and name = 'binding-000'
"""

Step = tuple[Key, Mapping[str, Any] | None]
"""A key and its next object, None: it is deleted."""


async def extend(session: PostgresSession) -> int:
    """Append the changes unless they are there. Return the revision of the first change of a binding."""
    await session.execute("set statement_timeout = 0; set synchronous_commit = off")
    first = (await session.fetch(_FIRST_BINDING, list(BINDINGS)))[0][0]
    if first is None:
        await _append_all(_Appender(session))
        await session.execute("vacuum analyze kubechronicle.log")
        first = (await session.fetch(_FIRST_BINDING, list(BINDINGS)))[0][0]
    return int(first)


async def _append_all(appender: _Appender) -> None:
    await appender.append([(Key(ROLES, "", name), _role(name, verbs)) for name, *verbs in _roles()])
    changes = list(_binding_changes())
    for begin in range(0, len(changes), BINDINGS_IN_TURN // 2):
        await appender.append(changes[begin : begin + BINDINGS_IN_TURN // 2])
    for number in range(UPDATES):
        await appender.append([(COUNTED, _counted(number))])


class _Appender:
    """Appends changes, and knows the revision of each key."""

    def __init__(self, session: PostgresSession) -> None:
        self._session = session
        self._newest: dict[Key, int] = {}
        self._last: dict[Key, bytes] = {}

    async def append(self, steps: Sequence[Step]) -> None:
        """Append one transaction. No key occurs twice."""
        changes = tuple(self._change(key, obj) for key, obj in steps)
        batch = Batch(id=uuid.uuid4(), transactions=(Transaction(changes=changes, who=Who(user="installer")),))
        result = rows.batch_result(batch, (await self._session.fetch(sql.APPEND, *rows.batch_arguments(batch)))[0])
        (records,) = result.outcomes
        assert isinstance(records, tuple), records
        for record in records:
            self._newest[record.key] = 0 if record.operation is Operation.DELETE else record.revision
            self._last[record.key] = record.body

    def _change(self, key: Key, obj: Mapping[str, Any] | None) -> Change:
        expected = self._newest.get(key, 0)
        return Change(
            key=key,
            uid=str(uuid.uuid5(uuid.NAMESPACE_URL, str(key))),
            expected=expected,
            operation=Operation.DELETE if obj is None else Operation.UPDATE if expected else Operation.CREATE,
            body=self._last[key] if obj is None else orjson.dumps(obj),
        )


def _roles() -> Iterator[tuple[str, ...]]:
    """Yield the name of each cluster role and its verbs."""
    yield "killer", "delete"
    yield "reader", "get", "list", "watch"
    for number in range(30):
        yield f"role-{number:02}", *(f"verb-{each}" for each in range(number % 7 + 1))


def _role(name: str, verbs: Sequence[str]) -> dict[str, Any]:
    rules = [{"apiGroups": ["", "apps"], "resources": ["pods", "pods/log", "deployments"], "verbs": list(verbs)}]
    return {"apiVersion": f"{GROUP}/v1", "kind": "ClusterRole", "metadata": {"name": name}, "rules": rules}


def _binding_changes() -> Iterator[Step]:
    uma = Key(BINDINGS[1], NAMESPACE, "of-uma")
    for number in range(BINDING_CHANGES):
        place, turn = number % BINDINGS_IN_TURN, number // BINDINGS_IN_TURN % 4
        key = Key(BINDINGS[place % 2], NAMESPACE if place % 2 else "", f"binding-{place:03}")
        if number == GIVEN:
            yield uma, _binding(uma, "killer", "User", "uma")
        elif number == TAKEN:
            yield uma, None
        elif turn == 3:
            yield key, None
        elif place % 4 < 2:
            yield key, _binding(key, "reader", "Group", "developers", note=str(number))
        else:
            yield key, _binding(key, "killer", "User", f"user-{place}-{turn}")


def _binding(key: Key, role: str, kind: str, name: str, note: str = "") -> dict[str, Any]:
    return {
        "apiVersion": f"{GROUP}/v1",
        "kind": "RoleBinding" if key.namespace else "ClusterRoleBinding",
        "metadata": {**_metadata(key), "labels": {"app": "shop", "team": "one"}, "annotations": {"note": note}},
        "roleRef": {"apiGroup": GROUP, "kind": "ClusterRole", "name": role},
        "subjects": [{"apiGroup": GROUP, "kind": kind, "name": name}],
    }


def _counted(number: int) -> dict[str, Any]:
    data = {"count": str(number), "half": "first" if number % 1000 < 500 else "second", "filling": "x" * SIZE}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": _metadata(COUNTED), "data": data}


def _metadata(key: Key) -> dict[str, str]:
    return {"name": key.name} | ({"namespace": key.namespace} if key.namespace else {})
