"""The verdicts of policies that only audit on the changes of the log (``?verdicts=audited`` in lists of revisions).

A ValidatingAdmissionPolicy that is bound with ``validationActions: [Audit]`` alone refuses nothing yet. Its numbers are
not counted while writes are made, but computed from the log when somebody asks. So they hold for the whole history,
for policies that were bound a minute ago, and after a restart.

Each write is judged with the namespace and the parameters of its moment. If an object of this view is not newer than
the write, it is the one of that moment; otherwise the log is asked. Policies whose parameters are selected by labels,
or that ask for rights, are left out, and the answer names them: `kubectl chronicle try-policy --audited` judges them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec
import orjson
import trio

from kubechronicle.actors.history.change_records import states_json
from kubechronicle.actors.reading.reads import Reads
from kubechronicle.api.admission.logged_changes import LoggedChange
from kubechronicle.api.admission.logged_writes import CREATE, DELETE, UPDATE, VIEWS, NotReplayed, Writes
from kubechronicle.api.admission.matching import NAMESPACES, WriteKind
from kubechronicle.api.admission.policy_sources import GROUP, Binding, ConfigurationError, Policy
from kubechronicle.api.admission.replays import REFUSED, Outcome, PolicyReplay, Reading
from kubechronicle.api.admission.validating_policies import Validator
from kubechronicle.api.cel.library.authorization import Decide, Decision, Question
from kubechronicle.api.registry.registry import Registry, ResourceType
from kubechronicle.api.values.objects import Object
from kubechronicle.eventlog.entries import Entry, seal
from kubechronicle.eventlog.errors import Compacted
from kubechronicle.eventlog.log import RevisionLog
from kubechronicle.eventlog.records import Key, Operation, Record

POLICIES: Final = f"validatingadmissionpolicies.{GROUP}"
BINDINGS: Final = f"validatingadmissionpolicybindings.{GROUP}"
AUDIT: Final = frozenset(("Audit",))
MOST_KEPT: Final = 1000
"""Objects of past moments that one request keeps."""

_LEFT_OUT: Final = "{} is left out, because {}. kubectl chronicle try-policy --audited judges it."
_CHANGE: Final = msgspec.json.Decoder(LoggedChange)
_THREADS: Final = trio.CapacityLimiter(1)
"""Requests judge in turns: a second thread would not compute faster."""

Pair = tuple[Record, Record | None]
Needed = tuple[str, str, str]
"""A stored resource, a namespace and a name."""


class AuditedPolicies:
    """The policies of this view that only audit, compiled once for each version of the policies and bindings."""

    def __init__(self, reads: Reads) -> None:
        self._reads = reads
        self._seen: tuple[Sequence[Entry], Sequence[Entry]] = ((), ())
        self._found = Audited((), ())

    def current(self) -> Audited:
        """Return the policies that can be judged, as if they denied, and those that cannot."""
        seen = (self._reads.entries(POLICIES, ""), self._reads.entries(BINDINGS, ""))
        if seen[0] is not self._seen[0] or seen[1] is not self._seen[1]:
            left_out: list[str] = []
            self._found = Audited(list(_audited(*seen, left_out)), left_out)
            self._seen = seen
        return self._found


class Audited(NamedTuple):
    """The policies that only audit. ``left_out``: a sentence about each policy or binding that is not judged."""

    policies: Sequence[Policy[Validator]]
    left_out: Sequence[str]


def _audited(policies: Iterable[Entry], bindings: Iterable[Entry], left_out: list[str]) -> Iterator[Policy[Validator]]:
    bound: dict[str, list[Binding]] = {}
    for entry in bindings:
        obj = entry.object()
        if frozenset(obj["spec"].get("validationActions") or ()) == AUDIT:
            obj["spec"]["validationActions"] = ["Deny"]
            binding = Binding(obj)
            if binding.param_ref is None or binding.param_ref.get("name"):
                bound.setdefault(binding.policy, []).append(binding)
            else:
                left_out.append(_LEFT_OUT.format(f"The binding {binding.name}", "it selects parameters by labels"))
    for entry in policies:
        if entry.key.name in bound:
            policy = Policy(entry.object(), Validator)
            policy.bindings = bound[policy.name]
            if "authorizer" not in policy.evaluator.reads:
                yield policy
            else:
                left_out.append(_LEFT_OUT.format(f"The policy {policy.name}", "it asks for rights"))


class Verdicts:
    """The verdicts on the changes that one request reads."""

    def __init__(self, policies: Sequence[Policy[Validator]], reads: Reads, registry: Registry) -> None:
        self._policies = policies
        self._reads = reads
        self._log: RevisionLog = reads.log
        self._registry = registry
        self._replay = PolicyReplay(policies, (), registry)
        self._writes = Writes(registry)
        self._past: dict[tuple[Needed, int], Object | None] = {}

    def resources(self) -> tuple[str, ...]:
        """Return the stored resources whose writes some policy matches."""
        return tuple(rt.resource for rt in self._registry.stored() if self._concerns(rt))

    def _concerns(self, stored: ResourceType) -> bool:
        return any(
            self._replay.concerns_kind(
                WriteKind(rt, subresource, operation, rt.namespaced or rt.resource == NAMESPACES)
            )
            for rt in self._registry.known_as(stored.resource)
            for subresource in ("", *(VIEWS & set(rt.subresources)))
            for operation in (CREATE, UPDATE, DELETE)
        )

    async def of(self, changes: Sequence[Pair]) -> Sequence[Sequence[Outcome]]:
        """Return the refusals of each change, none for one that cannot be judged."""
        states = [await self._state_of(record) for record, _ in changes]
        return await trio.to_thread.run_sync(self._judged, changes, states, limiter=_THREADS)

    def _judged(self, changes: Sequence[Pair], states: Sequence[_State]) -> Sequence[Sequence[Outcome]]:
        return [self._outcomes(*change, state) for change, state in zip(changes, states, strict=True)]

    def _outcomes(self, record: Record, before: Record | None, state: _State) -> Sequence[Outcome]:
        try:
            write = self._writes.write_of(_CHANGE.decode(states_json(record, before)), record.key.resource)
        except NotReplayed:
            return ()
        if not self._replay.concerns_kind(write.kind):
            return ()
        found = self._replay.validate(write, Reading(write, state))
        return [each for each in found if each.effect == REFUSED]

    # -- the state at the moment of a write ---------------------------------------------------------------------------

    async def _state_of(self, record: Record) -> _State:
        objects = {needed: await self._object_at(needed, record.revision - 1) for needed in self._needed(record.key)}
        return _State(objects)

    def _needed(self, key: Key) -> Iterator[Needed]:
        """Yield the objects that policies may look at for a write."""
        if key.namespace:
            yield (NAMESPACES, "", key.namespace)
        for policy in self._policies:
            try:
                rt = policy.param_type(self._registry)
            except ConfigurationError:
                continue
            for binding in policy.bindings if rt is not None else ():
                reference = binding.param_ref or {}
                if rt is not None and (name := reference.get("name")):
                    namespace = (reference.get("namespace") or key.namespace) if rt.namespaced else ""
                    yield (rt.resource, namespace, name)

    async def _object_at(self, needed: Needed, revision: int) -> Object | None:
        entry = self._reads.peek(*needed)
        if entry is not None and entry.revision <= revision:
            key = (needed, entry.revision)
            if key not in self._past:
                self._keep(key, entry.object())
            return self._past[key]
        key = (needed, revision)
        if key not in self._past:
            self._keep(key, await self._logged(Key(*needed), revision))
        return self._past[key]

    async def _logged(self, key: Key, revision: int) -> Object | None:
        try:
            record = await self._log.get_at(key, revision=revision)
        except Compacted:
            return None
        if record is None or record.operation is Operation.DELETE or record.erased:
            return None
        obj: Object = orjson.loads(seal(record.body, record.revision))
        return obj

    def _keep(self, key: tuple[Needed, int], obj: Object | None) -> None:
        if len(self._past) >= MOST_KEPT:
            self._past.clear()
        self._past[key] = obj


class _State:
    """The state just before one write (api.admission.replays.PastState)."""

    __slots__ = ("_objects",)

    def __init__(self, objects: Mapping[Needed, Object | None]) -> None:
        self._objects = objects

    def peek(self, resource: str, namespace: str, name: str) -> Object | None:
        return self._objects.get((resource, namespace, name))

    def entries(self, resource: str, namespace: str) -> Iterable[Object]:
        return ()  # policies with selected parameters are left out

    def decide(self, user: Mapping[str, Any]) -> Decide:
        def decide(question: Question) -> Decision:
            raise AssertionError("policies that ask for rights are left out")

        return decide


def with_verdicts(revision: bytes, outcomes: Sequence[Outcome]) -> bytes:
    """Return a Revision (JSON) with the verdicts on its write."""
    verdicts = [
        {"policy": each.source, "binding": each.binding, "message": each.message}
        | ({"reason": each.reason} if each.reason else {})
        | ({"error": True} if each.error else {})
        for each in outcomes
    ]
    return revision[:-1] + b',"verdicts":' + orjson.dumps(verdicts) + b"}"
