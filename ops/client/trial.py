"""A trial of policies: the writes of a period, each judged with the state of the cluster just before it.

Nothing is written. The reader's own rights decide which objects the server sends.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import orjson

from kubechronicle.api.access.past_state import RIGHTS, States
from kubechronicle.api.admission.logged_changes import LoggedChange
from kubechronicle.api.admission.logged_writes import LoggedWrites, NotReplayed
from kubechronicle.api.admission.matching import NAMESPACES, WriteKind
from kubechronicle.api.admission.policy_sources import ConfigurationError, Policy
from kubechronicle.api.admission.replayed_webhooks import MUTATING, Ask, WebhookReplay
from kubechronicle.api.admission.replays import REFUSED, PolicyReplay, ReplayReading
from kubechronicle.api.history.cells import DELETION_FIELDS
from kubechronicle.api.history.object_parts import ALWAYS, parts_of
from kubechronicle.api.history.positions import SPAN
from kubechronicle.api.registry.registry import Registry, ResourceType
from kubechronicle.api.values.objects import Object
from kubechronicle.ops.client.client import ApiError, Client
from kubechronicle.ops.client.output import Progress
from kubechronicle.ops.client.policy_files import PolicyFile, everything, name_of
from kubechronicle.ops.client.trial_changes import MOST_LISTS, Bounds, Source, changes, merged, resource_of, sources_of
from kubechronicle.ops.client.trial_report import Report
from kubechronicle.ops.errors import OperatorError

COLLECTED_AFTER: Final = 20_000
"""New objects after which cycles are looked for: those of a few hundred writes, which make no large cycles."""
REPORTED_EVERY: Final = 256
"""Changes between two updates of the progress bar."""


@dataclass(frozen=True, slots=True)
class Trial:
    """One trial.

    ``old_read``: the objects before the writes are read, as a policy or webhook may look at them.
    ``user_read``: the users' groups and the like are read.
    ``notes``: remarks for the reader.
    ``concerned``: whether a kind of write is judged, by the kinds met so far.
    """

    client: Client
    registry: Registry
    replay: PolicyReplay
    mutating: WebhookReplay
    validating: WebhookReplay
    sources: list[Source]
    context: Sequence[ResourceType]
    fixed: Sequence[tuple[str, Object]]
    bounds: Bounds
    namespace: str
    old_read: bool
    user_read: bool
    notes: Sequence[str]
    concerned: dict[WriteKind, bool] = field(default_factory=dict)

    def run(self, report: Report) -> bool:
        """Judge the writes. Return False if the user interrupted it: the report has those up to there. OperatorError.

        Memory holds the state that policies read, some pages of changes, and the report.
        """
        gc.freeze()
        gc.set_threshold(COLLECTED_AFTER)
        with Progress("judging writes", self.bounds.until - self.bounds.after) as progress:
            try:
                self._run(report, progress)
            except KeyboardInterrupt:
                return False
        return True

    def _run(self, report: Report, progress: Progress) -> None:
        states = States([rt.resource for rt in self.context], self.fixed)
        for rt in self.context if self.bounds.after else ():
            for obj in _objects_at(self.client, rt, self.bounds.after):
                states.add(rt.resource, obj)
        judged, followed = {each.resource for each in self.sources}, {rt.resource for rt in self.context}
        context = [Source(rt.resource, rt.namespaced) for rt in self.context]
        sources, writes = merged(self.sources, context), LoggedWrites(self.registry, old_read=self.old_read)
        runs = changes(self.client, sources, self.bounds, old_read=self.old_read, user_read=self.user_read)
        for source, run in runs:
            for change in run:
                resource = source or resource_of(change)
                report.read += 1
                if report.read % REPORTED_EVERY == 0 and change.revision < SPAN:
                    progress.reach(change.revision - self.bounds.after, f"{report.judged:,} writes")
                if resource in judged:
                    self._judge(resource, change, writes, states, report)
                if resource in followed:
                    states.apply(resource, change)

    def _judge(self, resource: str, change: LoggedChange, writes: LoggedWrites, states: States, report: Report) -> None:
        if self.namespace and change.object.namespace != self.namespace:
            return
        try:
            write = writes.write_of(change, resource)
        except NotReplayed as error:
            report.not_replayed[str(error)] += 1
            return
        concerns = self.concerned.get(write.kind)
        if concerns is None:
            concerns = self.concerned[write.kind] = self.concerns_kind(write.kind)
        if not concerns:
            return
        reading = ReplayReading(write, states)
        outcomes = self.replay.mutate(write, reading)
        if self.mutating.webhooks:
            outcomes += self.mutating.outcomes(write, reading)
        outcomes += self.replay.validate(write, reading)
        if self.validating.webhooks and not any(each.effect == REFUSED for each in outcomes):
            outcomes += self.validating.outcomes(write, reading)
        report.add(write, outcomes)

    def concerns_kind(self, kind: WriteKind) -> bool:
        """Tell whether some policy or webhook matches a kind of write."""
        return (
            self.replay.concerns_kind(kind) or self.mutating.concerns_kind(kind) or self.validating.concerns_kind(kind)
        )

    def fields_read(self, kinds: Sequence[WriteKind]) -> tuple[str, ...]:
        """Return the fields of objects that are read in writes of these kinds; empty: all."""
        fields = self.replay.reads.fields
        webhooks = self.mutating.webhooks or self.validating.webhooks
        if fields is None or webhooks or not all(map(self.replay.reads_stored_form, kinds)):
            return ()
        try:
            parts_of((*fields, *DELETION_FIELDS))
        except ValueError:  # too many of them
            return ()
        return fields or ALWAYS


def prepare(client: Client, file: PolicyFile, registry: Registry, bounds: Bounds, namespace: str, ask: Ask) -> Trial:
    """Return the trial of the policies and webhooks of a file. OperatorError, ApiError."""
    notes = _bind(client, file)
    validating, mutating = file.validating(), file.mutating()
    replay = PolicyReplay(validating, mutating, registry)
    policies: list[Policy[Any]] = [*validating, *mutating]
    context = [rt for rt in (registry.storage(NAMESPACES), *_param_types(policies, registry)) if rt is not None]
    if b"authorizer" in orjson.dumps([file.policies, file.webhooks]):
        context += [rt for rt in map(registry.storage, RIGHTS) if rt is not None]
        notes.append("Questions of expressions to `authorizer` were answered by RBAC alone, as of each write.")
    trial = Trial(
        client=client,
        registry=registry,
        replay=replay,
        mutating=WebhookReplay([each for each in file.webhooks if each["kind"] == MUTATING], registry, ask),
        validating=WebhookReplay([each for each in file.webhooks if each["kind"] != MUTATING], registry, ask),
        sources=[],
        context=list(dict.fromkeys(context)),
        fixed=[(_resource_of(obj, registry), obj) for obj in file.params],
        bounds=bounds,
        namespace=namespace,
        old_read=bool(file.webhooks) or replay.reads.old,
        user_read=bool(file.webhooks) or replay.reads.user,
        notes=notes,
    )
    trial.sources.extend(sources_of(trial.concerns_kind, trial.fields_read, registry, namespace))
    if not trial.sources:
        raise OperatorError("the policies match no resource that the server stores; see their rules")
    if bounds.after and len(trial.sources) <= MOST_LISTS:
        for each in trial.sources:
            notes.extend(_shorter(client, registry.storage(each.resource), bounds.after))
    return trial


def _shorter(client: Client, rt: ResourceType | None, revision: int) -> Iterator[str]:
    """Yield a remark if the history of a resource begins after a revision: events are kept for a day, for example."""
    if rt is None:
        return
    try:
        client.at(str(revision)).get(_path_of(rt), {"limit": "1"})
    except ApiError as error:
        if error.code == 410:
            yield f"Not all of the period is kept: {error.message}."


def _path_of(rt: ResourceType) -> str:
    return f"/apis/{rt.group}/{rt.version}/{rt.plural}" if rt.group else f"/api/{rt.version}/{rt.plural}"


def _bind(client: Client, file: PolicyFile) -> list[str]:
    """Give every policy a binding: the file's, the cluster's, or one for everything. Return remarks about it."""
    notes = []
    for policy in file.unbound():
        name, kind = name_of(policy), policy["kind"]
        found = [each for each in _bindings(client, policy) if each["spec"].get("policyName") == name]
        file.bindings += found or [everything(policy)]
        if found:
            names = ", ".join(name_of(each) for each in found)
            notes.append(f"{name}: the file has no binding, so those of the cluster were taken: {names}.")
        else:
            effect = ", with the action Deny" if kind.startswith("Validating") else ""
            notes.append(f"{name}: there is no binding, so it was bound to everything that it matches{effect}.")
    for binding in file.bindings:
        named = binding["spec"].get("policyName")
        owners = [name_of(each) for each in file.policies if f"{each['kind']}Binding" == binding["kind"]]
        if named not in owners:
            notes.append(f"The binding {name_of(binding)} was ignored: its policy {named} is not in the file.")
    return notes


def _bindings(client: Client, policy: Object) -> list[Object]:
    plural = f"{policy['kind'].lower()}bindings"
    try:
        return list(client.items(f"/apis/{policy['apiVersion']}/{plural}"))
    except ApiError as error:
        if error.code in (403, 404):
            return []
        raise


def _param_types(policies: Sequence[Policy[Any]], registry: Registry) -> Iterator[ResourceType]:
    for policy in policies:
        try:
            rt = policy.param_type(registry)
        except ConfigurationError as error:
            raise OperatorError(f"{policy.name}: {error}") from None
        if rt is not None:
            stored = registry.storage(rt.resource)
            if stored is not None:
                yield stored


def _resource_of(obj: Object, registry: Registry) -> str:
    """Return the stored resource of an object with parameters. OperatorError."""
    rt = registry.by_api_version(obj["apiVersion"], obj["kind"])
    if rt is None:
        raise OperatorError(f"the server has no kind {obj['kind']} in {obj['apiVersion']}")
    if rt.namespaced:
        obj["metadata"].setdefault("namespace", "default")
    return rt.resource


def _objects_at(client: Client, rt: ResourceType, revision: int) -> Iterator[Object]:
    return client.at(str(revision)).items(_path_of(rt))
