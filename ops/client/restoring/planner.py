"""The plan of a restore: the past state compared with the present one, and each step tried by a dry run.

A step that the server rejects now stays in the plan, with the reason. An object that cannot be changed in place (an
immutable field, another roleRef or selector) is deleted and created again, if the user agrees with --replace. A missing
namespace is the first step. Objects to create in it are not tried, as they would be rejected without it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kubechronicle.api.history.restore_plan import Step, steps
from kubechronicle.api.history.restore_rules import DATA_KINDS
from kubechronicle.api.meta.owners import Key
from kubechronicle.api.values.objects import Object
from kubechronicle.ops.client.client import ApiError, Client
from kubechronicle.ops.client.kinds import Kinds
from kubechronicle.ops.client.output import Progress
from kubechronicle.ops.client.restoring.deletions import described, last_deletion, mark, moment_before
from kubechronicle.ops.client.restoring.steps import Restorer, object_name, wait_until_gone
from kubechronicle.ops.client.revision_reader import RevisionQuery, scopes_of
from kubechronicle.ops.client.searches import Search, explain
from kubechronicle.ops.client.session import Session
from kubechronicle.ops.client.states import State, read_state
from kubechronicle.ops.client.subjects import Subject
from kubechronicle.ops.errors import OperatorError

# Objects named in a message about a namespace in deletion.
MAX_BLOCKERS: Final = 5
# Objects in deletion at the moment, whose mark is looked up for the plan.
MAX_MARKS: Final = 20


class Planner:
    """Compares the past state with the present one.

    ``moment``: of the past state; "": the one before the deletion of the subject
    ``past``: the state at the moment
    ``unread``: resources that could not be read in full, with the reason
    ``newer``: objects of the present that did not exist then and stay, because --prune is not set
    """

    def __init__(self, session: Session, moment: str) -> None:
        self.session = session
        self.kinds = session.kinds()
        words = session.arguments.words
        self.subject = session.subject(words, self.kinds, served=True) if words else None
        self.namespace = session.namespace if self.subject is None else self.subject.namespace
        self.moment = moment or self._moment_before_deletion()
        past_client = session.client.at(self.moment)
        self.past = self._read_past(past_client, Kinds.discover(past_client))
        self.unread = dict(self.past.unread)
        self.newer = 0

    def plan(self) -> list[Step]:
        """Return the steps from the present state to the past one, each tried. OperatorError."""
        present = State() if self._is_going() else self._read_present()
        self.unread |= present.unread
        arguments = self.session.arguments
        plan = steps(self.past.objects, present.objects, prune=self.subject is None)
        self.newer = 0 if arguments.prune else sum(step.action == "delete" for step in plan)
        plan = [step for step in plan if step.action != "delete" or (arguments.prune and self._is_known_absent(step))]
        last = plan[-1] if plan else None
        is_left = last is not None and last.action == "leave" and last.key == self._subject_key()
        if is_left and last is not None and last.why:
            raise OperatorError(f"{self.subject} cannot be restored: {last.why}")
        return self._tried(self._with_marks(plan))

    def restorer(self, *, dry_run: bool = False) -> Restorer:
        """Return the object that carries out steps, or with ``dry_run`` only tries them."""
        kinds = self.past.kinds | {(kind.group, kind.kind): kind for kind in self.kinds.all}
        return Restorer(self.session.client, kinds, timeout=self.session.arguments.timeout, dry_run=dry_run)

    # -- the past -----------------------------------------------------------------------------------------------------

    def _moment_before_deletion(self) -> str:
        """Return the moment before the last deletion of the subject. OperatorError if it exists or never did."""
        subject, client = self.subject or self._namespace_subject(), self.session.client
        live = client.get_if(subject.path())
        if live is not None and not live["metadata"].get("deletionTimestamp"):
            raise OperatorError(f"{subject.description} exists; --to names the moment whose state to restore")
        if live is None:
            began = last_deletion(client, subject)
        else:
            began = mark(client, subject, live["metadata"]["uid"], live["metadata"]["resourceVersion"])
        if began is None:
            searched = explain(self.session, Search(RevisionQuery(scopes_of(subject)), subject))
            raise OperatorError(
                f"history has no deletion of {subject.description}: {searched}; --to names the moment to restore"
            )
        self.session.screen.note(f"the deletion began with {described(began)}")
        return moment_before(began)

    def _read_past(self, client: Client, kinds: Kinds) -> State:
        subject = self.subject
        if subject is None:
            self._check_namespace(client)
            return read_state(client, kinds, [self.namespace], label="reading the past state")
        obj, state = client.get_if(subject.path()), State()
        if obj is None:
            hint = f"`log {subject}` lists its changes"
            raise OperatorError(f"there was no {subject.description} at {client.moment}; {hint}")
        if obj["metadata"].get("deletionTimestamp"):
            obj = self._before_deletion(subject, obj, client.moment) or obj
        if self.namespace:
            self._add_namespace(state, client)
        state.add(subject.kind, obj)
        return state

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

    def _add_namespace(self, state: State, client: Client) -> None:
        """Add the namespace of the subject to the past state, if it is missing now."""
        subject = self._namespace_subject()
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

    def _read_present(self) -> State:
        client = self.session.client
        if self.subject is None:
            return read_state(client, self.kinds, [self.namespace], label="reading the present state")
        state = State()
        for group, kind, namespace, name in self.past.objects:
            found = self.kinds.of_object(f"{group}/", kind)
            live = client.get_if(found.path(namespace, name)) if found is not None else None
            if found is not None and live is not None:
                state.add(found, live)
        return state

    def _subject_key(self) -> Key | None:
        return next((key for key in self.past.objects if self.subject and key[3] == self.subject.name), None)

    def _is_known_absent(self, step: Step) -> bool:
        """Return whether the object surely did not exist: the past list of its kind was complete."""
        kind = self.kinds.of_object(f"{step.key[0]}/", step.key[1])
        return kind is None or kind.full_name not in self.past.unread

    # -- the trial ----------------------------------------------------------------------------------------------------

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

    def _tried(self, plan: Sequence[Step]) -> list[Step]:
        """Return the plan with the server's objections, and with ``replace`` for what cannot be changed in place."""
        restorer, found = self.restorer(dry_run=True), []
        fresh = {step.key[3] for step in plan if step.action == "create" and step.key[:2] == ("", "Namespace")}
        defined = {
            (step.then["spec"]["group"], step.then["spec"]["names"]["kind"])
            for step in plan
            if step.action == "create" and step.then is not None and step.key[1] == "CustomResourceDefinition"
        }
        creates = False
        with Progress("trying", len(plan)) as progress:
            for step in plan:
                waits = step.key[2] in fresh or step.key[:2] in defined or (step.action == "create" and step.live)
                if step.action != "leave" and not waits:
                    step = _tried_one(restorer, step, is_alone=not creates)
                creates = creates or step.action == "create"
                found.append(step)
                progress.step(object_name(step.key))
        return found

    # -- the namespace ------------------------------------------------------------------------------------------------

    def _namespace_subject(self) -> Subject:
        kind = self.kinds.of_resource("", "namespaces")
        assert kind is not None
        return Subject(kind, "", self.namespace)

    def _is_going(self) -> bool:
        """Tell whether the namespace is being deleted."""
        if not self.namespace:
            return False
        try:
            namespace = self.session.client.get_if(self._namespace_subject().path())
        except ApiError as error:
            if error.code != 403 or self.subject is None:
                raise
            return False
        return namespace is not None and _is_ending(namespace)

    def wait_for_namespace(self) -> bool:
        """Wait until the namespace is gone, if it is in deletion, and return whether it was. OperatorError.

        The plan must be made again then.
        """
        if not self._is_going():
            return False
        timeout = self.session.arguments.timeout
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


def _tried_one(restorer: Restorer, step: Step, *, is_alone: bool) -> Step:
    """Return the step with the server's objection. ``is_alone``: no other step comes first that might remove it."""
    rejection = restorer.rejection(step)
    if rejection is None:
        return step
    if step.action == "update" and rejection.code == 422:
        again = step._replace(action="replace", why=rejection.message)
        if step.key[:2] in DATA_KINDS:
            return step._replace(problem=f"{rejection.message}; {DATA_KINDS[step.key[:2]]}")
        found = restorer.rejection(again)
        return again if found is None else step._replace(problem=found.message)
    if step.action == "create" and rejection.code in (403, 404) and not is_alone:
        return step._replace(why=f"alone it would be rejected: {rejection.message}")
    return step._replace(problem=rejection.message)
