"""The plan of a restore: a past state compared with the present one, and each step tried by a dry run.

    TYPE/NAME …                 these objects, as of --to or before their deletions
    TYPE/NAME … with consequences   and all that was deleted because of these deletions, in any namespace
    TYPE, -n or -A              all objects of a kind
    -n NAMESPACE                a namespace with its objects
    -A                          the cluster

A step that the server rejects now stays in the plan, with the reason (trial.py). A missing namespace is the first step.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kubechronicle.api.history.restore_plan import Step, held, rebindings, steps
from kubechronicle.api.meta.owners import Key
from kubechronicle.api.values.objects import Object
from kubechronicle.ops.client.client import ApiError, Client
from kubechronicle.ops.client.kinds import Kinds
from kubechronicle.ops.client.restoring.consequences import (
    AllKinds,
    consequences_of,
    described,
    last_deletion,
    mark,
    moment_before,
    states_before,
)
from kubechronicle.ops.client.restoring.steps import Restorer, wait_until_gone
from kubechronicle.ops.client.restoring.trial import tried
from kubechronicle.ops.client.revision_reader import RevisionQuery, number_of, scopes_of
from kubechronicle.ops.client.searches import Search, explain
from kubechronicle.ops.client.session import Session, split_objects
from kubechronicle.ops.client.states import ClusterState, key_of, read_state
from kubechronicle.ops.client.subjects import Subject
from kubechronicle.ops.errors import OperatorError

# Objects named in a message about a namespace in deletion.
MAX_BLOCKERS: Final = 5
# Objects in deletion at the moment, whose mark is looked up for the plan.
MAX_MARKS: Final = 20


class Planner:
    """Compares the past state with the present one.

    ``subjects``: the named objects, or one kind without a name; empty for a namespace, or the cluster
    ``moment``: of the past state; of several deleted objects the one of the last
    ``past``: the state at the moment
    ``unread``: resources that could not be read in full, with the reason
    ``newer``: objects of the present that did not exist then and stay, because --prune is not set
    ``unknown``: why there may be more consequences, in words
    """

    def __init__(self, session: Session, moment: str) -> None:
        self.session = session
        self.kinds = session.kinds()
        self._arguments = session.arguments
        self.everywhere = bool(getattr(self._arguments, "all_namespaces", False))
        self.subjects = self._named()
        self.is_kind = bool(self.subjects) and not self.subjects[0].name
        self.namespace = "" if self.everywhere else session.namespace
        if self.subjects and not any(each.namespace for each in self.subjects):
            self.namespace = ""
        self.unknown: list[str] = []
        self.newer = 0
        self.moment = moment
        self._causes: dict[Key, int] = {}
        self._all_kinds = AllKinds(session.client, self.kinds)
        self.past = self._read_past()
        self.unread = dict(self.past.unread)

    def _named(self) -> list[Subject]:
        words = self._arguments.words
        if not words:
            return []
        found = [
            self.session.subject(each, self.kinds, served=True, name_required=False) for each in split_objects(words)
        ]
        if self.everywhere and any(each.name and each.kind.namespaced for each in found):
            raise OperatorError("a name is in one namespace: name it with -n, not with -A")
        return list(dict.fromkeys(found))

    @property
    def is_whole(self) -> bool:
        """True if the plan is about all objects of a namespace, a kind or the cluster."""
        return not self.subjects or self.is_kind

    def plan(self) -> list[Step]:
        """Return the steps from the present state to the past one, each tried. OperatorError."""
        present = ClusterState() if self._is_going() else self._read_present()
        self.unread |= present.unread
        prune = bool(self._arguments.prune)
        controlled = bool(getattr(self._arguments, "with_controlled", False))
        plan = steps(
            self.past.objects,
            present.objects,
            prune=self.is_whole,
            controlled=controlled,
            named=not self.is_whole,
        )
        self.newer = 0 if prune else sum(step.action == "delete" for step in plan)
        plan = [step for step in plan if step.action != "delete" or (prune and self._is_known_absent(step))]
        self._check_left(plan)
        if self._arguments.replace:
            plan = [self._with_address(step) for step in plan]
        plan = [self._with_cause(step) for step in plan] + rebindings(plan, self._volumes(plan))
        return tried(self.restorer(dry_run=True), self._with_marks(plan), replaceable=lambda _: True)

    def _check_left(self, plan: Sequence[Step]) -> None:
        """Refuse a plan that leaves the only object it is about. OperatorError."""
        if len(self.subjects) != 1 or self.is_kind or not plan:
            return
        subject, last = self.subjects[0], plan[-1]
        if last.action == "leave" and last.key[3] == subject.name and last.key[1] == subject.kind.kind and last.why:
            raise OperatorError(f"{subject} cannot be restored: {last.why}")

    def _with_cause(self, step: Step) -> Step:
        step = step._replace(cause=self._causes.get(step.key, 0))
        if step.action == "create" and step.live is not None and (finalizers := held(step.live)):
            return step._replace(
                why=f"it is still being deleted, held by the finalizers {finalizers}: it waits for its end"
            )
        return step

    def restorer(self, *, dry_run: bool = False) -> Restorer:
        """Return the object that carries out steps, or with ``dry_run`` only tries them."""
        kinds = {(kind.group, kind.kind): kind for kind in self.kinds.all} | self._all_kinds.used
        kinds = self.past.kinds | kinds
        return Restorer(
            self.session.client,
            kinds,
            timeout=self._arguments.timeout,
            dry_run=dry_run,
            on_wait=self.session.screen.note,
        )

    # -- the past -----------------------------------------------------------------------------------------------------

    def _read_past(self) -> ClusterState:
        if self.is_whole:
            if not self.moment:
                if self.subjects or self.everywhere:
                    raise OperatorError("--to names the moment whose state to restore")
                self.moment = moment_before(self._deletion(self._namespace_subject()))
            return self._read_whole(self.session.client.at(self.moment))
        state = ClusterState()
        for subject in self.subjects:
            began = None if self.moment else self._deletion(subject)
            moment = self.moment or moment_before(began or {})
            self._add_subject(state, subject, self.session.client.at(moment))
            if began is not None:
                self._causes |= {key: number_of(began) for key in state.objects if key not in self._causes}
            if getattr(self._arguments, "with_consequences", False):
                self._add_consequences(state, subject, began)
        if not self.moment:
            self.moment = moment
        return state

    def _read_whole(self, client: Client) -> ClusterState:
        kinds = Kinds.discover(client)
        if self.is_kind:
            state, subject = ClusterState(), self.subjects[0]
            kind = kinds.of_resource(subject.kind.group, subject.kind.plural) or subject.kind
            for obj in client.items(kind.path(subject.namespace)):
                state.add(kind, {**obj, "apiVersion": kind.api_version, "kind": kind.kind})
            for namespace in sorted({key[2] for key in state.objects if key[2]}):
                self._add_namespace(state, client, namespace)
            return state
        if self.namespace:
            self._check_namespace(client)
            return read_state(client, kinds, [self.namespace], label="reading the past state")
        return read_state(client, kinds, [], label="reading the past state")

    def _add_subject(self, state: ClusterState, subject: Subject, client: Client) -> None:
        """Add one object as of the client's moment, and its namespace, if that is missing now. OperatorError."""
        obj = client.get_if(subject.path())
        if obj is None:
            hint = f"`log {subject}` lists its changes"
            raise OperatorError(f"there was no {subject.description} at {client.moment}; {hint}")
        if obj["metadata"].get("deletionTimestamp"):
            obj = self._before_deletion(subject, obj, client.moment) or obj
        if subject.namespace:
            self._add_namespace(state, client, subject.namespace)
        state.add(subject.kind, obj)

    def _add_consequences(self, state: ClusterState, subject: Subject, began: Object | None) -> None:
        """Add all objects that were deleted because of the deletion of one. OperatorError."""
        began = began or last_deletion(self.session.client, subject)
        if began is None:
            raise OperatorError(f"history has no deletion of {subject.description}: nothing followed from it")
        found = consequences_of(self.session.client, scopes_of(subject)[0].path, number_of(began))
        self.unknown += [each for each in found.unknown if each not in self.unknown]
        for obj, number in states_before(found.deletions).values():
            kind = self._all_kinds.of(obj)
            if kind is None:
                name = f"{obj['kind']}/{obj['metadata']['name']}"
                state.unread[name] = f"the server has no kind {obj['kind']} any more"
            elif key_of(obj) not in state.objects:
                state.add(kind, obj)
                self._causes[key_of(obj)] = number

    def _deletion(self, subject: Subject) -> Object:
        """Return the revision that began the last deletion of an object. OperatorError if it exists or never did.

        A namespace that was created again since counts as deleted: its former objects are gone.
        """
        client = self.session.client
        live = client.get_if(subject.path())
        if live is not None and live["metadata"].get("deletionTimestamp"):
            began = mark(client, subject, live["metadata"]["uid"], live["metadata"]["resourceVersion"])
        else:
            began = last_deletion(client, subject)
        again = live is not None and not live["metadata"].get("deletionTimestamp")
        of_former = began is not None and live is not None and began["object"].get("uid") != live["metadata"]["uid"]
        if again and not (of_former and (self.is_whole or getattr(self._arguments, "with_consequences", False))):
            raise OperatorError(f"{subject.description} exists; --to names the moment whose state to restore")
        if began is None:
            searched = explain(self.session, Search(RevisionQuery(scopes_of(subject)), subject))
            raise OperatorError(
                f"history has no deletion of {subject.description}: {searched}; --to names the moment to restore"
            )
        since = ", and it was created again since" if again else ""
        self.session.screen.note(f"the deletion began with {described(began)}{since}")
        return began

    def _check_namespace(self, client: Client) -> None:
        """Raise OperatorError if the namespace was missing at the moment, or being deleted."""
        subject = self._namespace_subject()
        namespace = client.get_if(subject.path())
        if namespace is None:
            hint = f"`log {subject}` lists its changes"
            raise OperatorError(f"there was no namespace {self.namespace} at {client.moment}; {hint}")
        if namespace["metadata"].get("deletionTimestamp"):
            began = mark(self.session.client, subject, namespace["metadata"]["uid"], client.moment)
            since = f" since {described(began)}: use --to {moment_before(began)}" if began else ""
            raise OperatorError(f"at {client.moment}, {subject} was being deleted{since}")

    def _before_deletion(self, subject: Subject, obj: Object, moment: str) -> Object | None:
        """Return the state before its deletion began, of an object that waited for finalizers at the moment.

        None if history does not hold it.
        """
        client = self.session.client
        began = mark(client, subject, obj["metadata"]["uid"], moment)
        if began is None:
            return None
        before = moment_before(began)
        self.session.screen.note(f"{subject} was being deleted since {described(began)}: its state at {before} is used")
        return client.at(before).get_if(subject.path())

    def _add_namespace(self, state: ClusterState, client: Client, name: str) -> None:
        """Add a namespace to the past state, if it is missing now."""
        subject = self._namespace_subject(name)
        try:
            live = self.session.client.get_if(subject.path())
            then = client.get_if(subject.path()) if live is None or _is_ending(live) else None
        except ApiError as error:
            if error.code != 403:
                raise
            return
        if then is not None and not _is_ending(then):
            state.add(subject.kind, then)

    # -- the present --------------------------------------------------------------------------------------------------

    def _read_present(self) -> ClusterState:
        client = self.session.client
        if not self.subjects:
            namespaces = [self.namespace] if self.namespace else []
            return read_state(client, self.kinds, namespaces, label="reading the present state")
        state = ClusterState()
        for key in self.past.objects:
            found = self.kinds.of_object(f"{key[0]}/", key[1])
            live = client.get_if(found.path(key[2], key[3])) if found is not None else None
            if found is not None and live is not None:
                state.add(found, live)
        if self.is_kind:
            subject = self.subjects[0]
            for obj in client.items(subject.path()):
                state.add(subject.kind, {**obj, "apiVersion": subject.kind.api_version, "kind": subject.kind.kind})
        return state

    def _volumes(self, plan: Sequence[Step]) -> dict[str, Object]:
        """Return the present volumes of the claims that the plan creates."""
        kind, found = self.kinds.of_resource("", "persistentvolumes"), dict[str, Object]()
        for step in plan:
            if step.action != "create" or step.key[:2] != ("", "PersistentVolumeClaim") or step.then is None:
                continue
            name = str((step.then.get("spec") or {}).get("volumeName") or "")
            try:
                live = self.session.client.get_if(kind.path("", name)) if kind is not None and name else None
            except ApiError as error:
                if error.code != 403:
                    raise
                self.unread[f"persistentvolume/{name}"] = error.message
                continue
            if live is not None:
                found[name] = live
        return found

    def _with_address(self, step: Step) -> Step:
        """Return the step that gives a Service its former cluster IP again, if nobody has that now."""
        kind, was = self.kinds.of_resource("networking.k8s.io", "ipaddresses"), step.then or {}
        if not step.differs or step.key[:2] != ("", "Service") or kind is None:
            return step
        address = str((was.get("spec") or {}).get("clusterIP"))
        try:
            if address == "None" or self.session.client.get_if(kind.path("", address)) is not None:
                return step
        except ApiError as error:
            if error.code != 403:
                raise
            return step
        return step._replace(
            action="replace", differs="", why=f"its cluster IP {address} is free, and can be set only at a creation"
        )

    def _is_known_absent(self, step: Step) -> bool:
        """Return whether the object surely did not exist: the past list of its kind was complete."""
        kind = self.kinds.of_object(f"{step.key[0]}/", step.key[1])
        return kind is None or kind.full_name not in self.past.unread

    def _with_marks(self, plan: Sequence[Step]) -> list[Step]:
        """Tell since when the objects were being deleted that the plan leaves for that reason."""
        found, looked_up = [], 0
        for step in plan:
            kind = self.past.kinds.get(step.key[:2])
            if step.ended and kind is not None and step.then is not None and looked_up < MAX_MARKS:
                looked_up += 1
                subject = Subject(kind, step.key[2], step.key[3])
                began = mark(self.session.client, subject, step.then["metadata"]["uid"], self.moment)
                if began is not None:
                    why = f"it was being deleted since {described(began)}: use --to {moment_before(began)}"
                    step = step._replace(why=why)
            found.append(step)
        return found

    # -- the namespace ------------------------------------------------------------------------------------------------

    def _namespace_subject(self, name: str = "") -> Subject:
        kind = self.kinds.of_resource("", "namespaces")
        assert kind is not None
        return Subject(kind, "", name or self.namespace)

    def _is_going(self) -> bool:
        """Tell whether the namespace is being deleted."""
        if not self.namespace:
            return False
        try:
            namespace = self.session.client.get_if(self._namespace_subject().path())
        except ApiError as error:
            if error.code != 403 or not self.subjects:
                raise
            return False
        return namespace is not None and _is_ending(namespace)

    def wait_for_namespace(self) -> bool:
        """Wait until the namespace is gone, if it is in deletion, and return whether it was. OperatorError.

        The plan must be made again then.
        """
        if not self._is_going():
            return False
        timeout = self._arguments.timeout
        self.session.screen.note(f"namespace {self.namespace} is still being deleted; waiting up to {timeout:g} s")
        wait_until_gone(self.session.client, self._namespace_subject().path(), timeout, self._find_blockers)
        return True

    def _find_blockers(self) -> str:
        """Return the objects whose finalizers block the deletion of the namespace."""
        state = read_state(self.session.client, self.kinds, [self.namespace], label="looking for finalizers")
        blockers = [
            f"{obj['kind'].lower()}/{obj['metadata']['name']} has {', '.join(obj['metadata']['finalizers'])}"
            for obj in state.objects.values()
            if obj["metadata"].get("finalizers")
        ]
        more = f" and {len(blockers) - MAX_BLOCKERS} more" if len(blockers) > MAX_BLOCKERS else ""
        return f"blocked by finalizers: {'; '.join(blockers[:MAX_BLOCKERS])}{more}" if blockers else ""


def _is_ending(obj: Object) -> bool:
    return bool(obj["metadata"].get("deletionTimestamp"))
