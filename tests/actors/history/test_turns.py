"""Turning points of rights: equal to those of a replay of all roles and bindings, at every revision."""

from __future__ import annotations

import random
import uuid
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, cast

import orjson
import pytest

from kubechronicle.actors.history import rights
from kubechronicle.actors.history.rights import Turns, TurnSearch
from kubechronicle.actors.reading.reads import Reads
from kubechronicle.api.access.grants_over_time import BINDINGS, ROLES, GrantsOverTime, Subject
from kubechronicle.eventlog.memory.memory_log import MemoryLog
from kubechronicle.eventlog.records import Batch, Change, Key, Operation, Transaction, Who

SUBJECTS: tuple[Subject, ...] = (("User", "uma"), ("Group", "ops"), ("User", "system:serviceaccount:a:ci"))
Bodies = dict[Key, dict[str, Any]]


def role(draw: random.Random) -> dict[str, Any]:
    verbs = draw.choice((["delete"], ["get"], ["get", "delete"]))
    rules = [{"apiGroups": [""], "resources": ["pods"], "verbs": verbs}]
    return {"rules": draw.choice((rules, rules, None, []))}


def binding(draw: random.Random, namespace: str) -> dict[str, Any]:
    kind = draw.choice(("Role", "ClusterRole")) if namespace else "ClusterRole"
    subjects = [
        {"kind": "User", "name": "uma"},
        {"kind": "Group", "name": "ops"},
        {"kind": "ServiceAccount", "name": "ci", "namespace": "a"},
        {"kind": "User", "name": "other"},
    ]
    chosen = draw.sample(subjects, draw.randrange(3))
    reference = {"kind": kind, "name": draw.choice("rs")}
    return {"roleRef": reference, "subjects": chosen} if draw.random() < 0.9 else {"roleRef": reference}


async def filled(seed: int, length: int) -> tuple[MemoryLog, list[Bodies]]:
    """Return a log of random changes, and the objects after each revision."""
    draw, log = random.Random(seed), MemoryLog()
    live: dict[Key, int] = {}
    states: list[Bodies] = [{}]
    for number in range(1, length + 1):
        resource = draw.choice((*ROLES, *BINDINGS, BINDINGS[1], "pods"))
        namespace = "" if resource.startswith("cluster") else draw.choice("aab")
        key = Key(resource, namespace, draw.choice("rs"))
        expected, bodies = live.pop(key, 0), dict(states[-1])
        operation = draw.choice((Operation.UPDATE, Operation.DELETE)) if expected else Operation.CREATE
        obj = bodies.pop(key, {})
        if operation is not Operation.DELETE:
            made = role(draw) if resource in ROLES else binding(draw, namespace)
            obj = bodies[key] = {"apiVersion": "v1", "kind": "X", "metadata": {"name": key.name}, **made}
            live[key] = number
        states.append(bodies)
        change = Change(key=key, uid="u", expected=expected, operation=operation, body=orjson.dumps(obj))
        who = Who(user=f"user-{number}")
        await log.append(Batch(id=uuid.uuid4(), transactions=(Transaction(changes=(change,), who=who),)))
    return log, states


def permits(rule: Mapping[str, Any]) -> bool:
    return "delete" in rule["verbs"]


def grants_of(bodies: Bodies) -> GrantsOverTime:
    grants = GrantsOverTime(permits, lambda subject: subject)
    for key, obj in bodies.items():
        if key.resource in (*ROLES, *BINDINGS) and key.namespace in ("", "a"):
            grants.put(key.resource, (key.namespace, key.name), obj)
    return grants


def reads_of(log: MemoryLog, applied: int) -> Reads:
    class Views:
        def __getitem__(self, resource: str) -> Any:
            return SimpleNamespace(held_since=applied + 1, unchanged_since=lambda revision: False)

        def compacted_for(self, resource: str) -> int:
            return 0

    return cast(Reads, SimpleNamespace(log=log, applied=applied, views=Views()))


def naive(states: list[Bodies], moment: int, subject: Subject) -> tuple[int, int]:
    """Return the revisions of the last change of sides up to the moment and of the first one after it, 0: none."""
    held = [grants_of(bodies).holds(subject) for bodies in states]
    since = next((each for each in range(moment, 0, -1) if held[each] is not held[each - 1]), 0)
    until = next((each for each in range(moment + 1, len(held)) if held[each] is not held[each - 1]), 0)
    return since, until


def revisions(turns: Turns, subject: Subject) -> tuple[int, int]:
    since, until = turns.since.get(subject), turns.until.get(subject)
    return since.revision if since else 0, until.revision if until else 0


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("named", [True, False])
async def test_turns_are_those_of_a_replay(seed: int, named: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rights, "FIRST_CHUNK", 5)
    monkeypatch.setattr(rights, "CHUNK", 8)
    log, states = await filled(seed, 60)
    reads, last = reads_of(log, len(states) - 1), len(states) - 1
    for moment in range(0, last + 1, 3):
        for subjects in [[each] for each in SUBJECTS] if named else [SUBJECTS]:
            names = {name for _, name in subjects} if named else None
            search = TurnSearch(reads, namespace="a", floor=0, names=names)
            turns = await search.turns(grants_of(states[moment]), moment, subjects)
            assert turns.whole
            for subject in subjects:
                assert revisions(turns, subject) == naive(states, moment, subject), (moment, subject)
                for found in (turns.since.get(subject), turns.until.get(subject)):
                    assert found is None or (found.who is not None and found.who.user == f"user-{found.revision}")
