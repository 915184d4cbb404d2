"""The verdicts of policies that only audit on the changes of the log (``?verdicts=audited`` in lists of revisions).

A ValidatingAdmissionPolicy that is bound with ``validationActions: [Audit]`` alone refuses nothing yet. Its numbers are
not counted while writes are made, but computed from the log when somebody asks. So they hold for the whole history,
for policies that were bound a minute ago, and after a restart.

Each write is judged with the namespace and the parameters of its moment. If an object of this view is not newer than
the write, it is the one of that moment; otherwise the log is asked. Lists of parameters, and roles with their
bindings, are those of the moment, too (state_before_writes.py). Rights are answered by RBAC alone, and the answer says
so.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

import msgspec
import orjson
import trio

from kubechronicle.actors.evaluation import evaluate_in_thread
from kubechronicle.actors.history.change_records import states_json
from kubechronicle.actors.history.state_before_writes import Lists, WriteScope, object_of, read_lists
from kubechronicle.actors.reading.reads import Reads
from kubechronicle.api.access.past_state import RIGHTS
from kubechronicle.api.admission.logged_changes import LoggedChange
from kubechronicle.api.admission.logged_writes import CREATE, DELETE, UPDATE, VIEWS, LoggedWrites, NotReplayed
from kubechronicle.api.admission.matching import NAMESPACES, WriteKind
from kubechronicle.api.admission.policy_sources import GROUP, ConfigurationError, Policy, PolicyBinding
from kubechronicle.api.admission.replays import REFUSED, PolicyReplay, ReplayOutcome, ReplayReading
from kubechronicle.api.admission.validating_policies import Validator
from kubechronicle.api.cel.library.authorization import AuthorizerDecision, AuthorizerQuestion, Decide
from kubechronicle.api.errors import status
from kubechronicle.api.errors.status import StatusError
from kubechronicle.api.registry.registry import Registry, ResourceType
from kubechronicle.api.values.caches import kept
from kubechronicle.api.values.objects import Object
from kubechronicle.eventlog.entries import Entry
from kubechronicle.eventlog.errors import Compacted
from kubechronicle.eventlog.log import RevisionLog
from kubechronicle.eventlog.records import Key, Record

POLICIES: Final = f"validatingadmissionpolicies.{GROUP}"
BINDINGS: Final = f"validatingadmissionpolicybindings.{GROUP}"
AUDIT: Final = frozenset(("Audit",))
MOST_KEPT: Final = 1000
"""Objects of past moments that one request keeps."""

SECONDS: Final = 10.0
"""Seconds of CPU of the policies on the changes of one chunk."""

_BY_RBAC: Final = "The policy {} asks for rights. They are answered by RBAC alone, as of each write."
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

    async def current(self) -> Audited:
        """Return the policies, as if they denied. They are compiled in a thread."""
        seen = (self._reads.entries(POLICIES, ""), self._reads.entries(BINDINGS, ""))
        if seen[0] is not self._seen[0] or seen[1] is not self._seen[1]:
            self._found = await trio.to_thread.run_sync(_compiled, seen, limiter=_THREADS)
            self._seen = seen
        return self._found


class Audited(NamedTuple):
    """The policies that only audit. ``remarks``: sentences for the reader of the verdicts."""

    policies: Sequence[Policy[Validator]]
    remarks: Sequence[str]


def _too_slow() -> StatusError:
    return status.bad_request(f"the policies take more than {SECONDS:.0f} s on these changes: ask for fewer")


def _compiled(seen: tuple[Sequence[Entry], Sequence[Entry]]) -> Audited:
    remarks: list[str] = []
    return Audited(list(_audited(*seen, remarks)), remarks)


def _audited(policies: Iterable[Entry], bindings: Iterable[Entry], remarks: list[str]) -> Iterator[Policy[Validator]]:
    bound: dict[str, list[PolicyBinding]] = {}
    for entry in bindings:
        obj = entry.object()
        if frozenset(obj["spec"].get("validationActions") or ()) == AUDIT:
            obj["spec"]["validationActions"] = ["Deny"]
            binding = PolicyBinding(obj)
            bound.setdefault(binding.policy, []).append(binding)
    for entry in policies:
        if entry.key.name in bound:
            policy = Policy(entry.object(), Validator)
            policy.bindings = bound[policy.name]
            if _asks_for_rights(policy):
                remarks.append(_BY_RBAC.format(policy.name))
            yield policy


def _asks_for_rights(policy: Policy[Any]) -> bool:
    return "authorizer" in policy.evaluator.reads


class Verdicts:
    """The verdicts on the changes that one request reads."""

    def __init__(self, policies: Sequence[Policy[Validator]], reads: Reads, registry: Registry) -> None:
        self._policies = policies
        self._reads = reads
        self._log: RevisionLog = reads.log
        self._registry = registry
        self._replay = PolicyReplay(policies, (), registry)
        self._writes = LoggedWrites(registry)
        self._past: dict[tuple[Needed, int], Object | None] = kept("objects judged by audited policies")

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

    async def of(self, changes: Sequence[Pair], at: Sequence[int]) -> Sequence[Sequence[ReplayOutcome]]:
        """Return the refusals of each change, none for one that cannot be judged.

        ``at``: for each, the revision of the main log before which the state is that before the change.
        """
        lists = await self._lists([record for record, _ in changes], at)
        states = [await self._state_of(record, number, lists) for (record, _), number in zip(changes, at, strict=True)]
        judged = partial(self._judged, changes, at, states)
        return await evaluate_in_thread(judged, seconds=SECONDS, limiter=_THREADS, exceeded=_too_slow)

    def _judged(
        self, changes: Sequence[Pair], at: Sequence[int], states: Sequence[_State]
    ) -> Sequence[Sequence[ReplayOutcome]]:
        outcomes: list[Sequence[ReplayOutcome]] = [()] * len(changes)
        for place in sorted(range(len(changes)), key=at.__getitem__):
            if states[place].begin(at[place]):
                outcomes[place] = self._outcomes(*changes[place], states[place])
        return outcomes

    def _outcomes(self, record: Record, before: Record | None, state: _State) -> Sequence[ReplayOutcome]:
        try:
            write = self._writes.write_of(_CHANGE.decode(states_json(record, before)), record.key.resource)
        except NotReplayed:
            return ()
        if not self._replay.concerns_kind(write.kind):
            return ()
        found = self._replay.validate(write, ReplayReading(write, state))
        return [each for each in found if each.effect == REFUSED]

    # -- the state at the moment of a write ---------------------------------------------------------------------------

    async def _state_of(self, record: Record, at: int, lists: Lists | None) -> _State:
        objects = {needed: await self._object_at(needed, at - 1) for needed in self._needed(record.key)}
        return _State(objects, lists)

    async def _lists(self, records: Sequence[Record], at: Sequence[int]) -> Lists | None:
        """Read the lists that policies look at for some writes; None: they look at none. StatusError 400."""
        scopes = {scope for record in records for scope in self._scopes(record.key)}
        if not scopes:
            return None
        first, last = min(at), max(at)
        while True:
            try:
                return await read_lists(self._log, scopes, first=first, last=last)
            except Compacted as error:
                first = error.compacted + 1  # older states are gone, and the writes before cannot be judged
                last = max(first, last)

    def _scopes(self, key: Key) -> Iterator[WriteScope]:
        """Yield the lists that policies may look at for a write."""
        for policy in self._policies:
            if _asks_for_rights(policy):
                yield from (WriteScope(resource, "") for resource in RIGHTS)
            for rt, reference in self._references(policy):
                if not reference.get("name"):
                    yield WriteScope(
                        rt.resource, (reference.get("namespace") or key.namespace) if rt.namespaced else ""
                    )

    def _needed(self, key: Key) -> Iterator[Needed]:
        """Yield the objects that policies may look at for a write."""
        if key.namespace:
            yield (NAMESPACES, "", key.namespace)
        for policy in self._policies:
            for rt, reference in self._references(policy):
                if name := reference.get("name"):
                    namespace = (reference.get("namespace") or key.namespace) if rt.namespaced else ""
                    yield (rt.resource, namespace, name)

    def _references(self, policy: Policy[Any]) -> Iterator[tuple[ResourceType, Mapping[str, Any]]]:
        """Yield the type and the reference of the parameters of each binding."""
        try:
            rt = policy.param_type(self._registry)
        except ConfigurationError:
            return
        if rt is not None:
            yield from ((rt, each.param_ref) for each in policy.bindings if each.param_ref is not None)

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
        return None if record is None else object_of(record)

    def _keep(self, key: tuple[Needed, int], obj: Object | None) -> None:
        if len(self._past) >= MOST_KEPT:
            self._past.clear()
        self._past[key] = obj


class _State:
    """The state just before one write (api.admission.replays.PastState)."""

    __slots__ = ("_lists", "_objects")

    def __init__(self, objects: Mapping[Needed, Object | None], lists: Lists | None) -> None:
        self._objects = objects
        self._lists = lists

    def begin(self, revision: int) -> bool:
        """Begin with a write, in the order of revisions. Return False if its state is not known."""
        if self._lists is not None:
            self._lists.go_to(revision)
        return self._lists is None or revision >= self._lists.first

    def peek(self, resource: str, namespace: str, name: str) -> Object | None:
        return self._objects.get((resource, namespace, name))

    def entries(self, resource: str, namespace: str) -> Iterable[Object]:
        return () if self._lists is None else self._lists.entries(resource, namespace)

    def decide(self, user: Mapping[str, Any]) -> Decide:
        if self._lists is not None:
            return self._lists.decide(user)

        def decide(question: AuthorizerQuestion) -> AuthorizerDecision:
            raise AssertionError("no policy asks for rights")

        return decide


def with_verdicts(revision: bytes, outcomes: Sequence[ReplayOutcome]) -> bytes:
    """Return a Revision (JSON) with the verdicts on its write."""
    verdicts = [
        {"policy": each.source, "binding": each.binding, "message": each.message}
        | ({"reason": each.reason} if each.reason else {})
        | ({"error": True} if each.error else {})
        for each in outcomes
    ]
    return revision[:-1] + b',"verdicts":' + orjson.dumps(verdicts) + b"}"
