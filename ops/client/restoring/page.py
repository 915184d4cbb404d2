"""Restores that the web page asks for: first the plan, then its steps, if the plan is still the one that was shown.

    request   {"words": ["deployments.apps/web"], "namespace": "shop", "to": "4711", "replace": false}
    answer    {"moment", "notes", "unread", "steps", "plan"}; "plan" is the digest of the steps
              with "consequences": true also what was deleted because of the deletion of these objects
    request   the same with "plan": the digest
    answer    the same with "results"; or 409 with another plan, if the cluster has changed since

    request   {"words": ["deployments.apps/web"], "namespace": "shop", "revision": "4711"}
              undoes one change, and keeps what others changed later

The planners and the steps are those of `kubectl chronicle restore` and `revert`, with the user's own rights. Nothing is
pruned.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import orjson

from kubechronicle.api.history.restore_plan import Step
from kubechronicle.api.values.objects import Object
from kubechronicle.ops.client.client import Client
from kubechronicle.ops.client.output import Screen
from kubechronicle.ops.client.restoring.consequences import AllKinds
from kubechronicle.ops.client.restoring.execution import agreed, execute, execution_document, step_document
from kubechronicle.ops.client.restoring.planner import Planner
from kubechronicle.ops.client.restoring.reversal_texts import kept, tried_plan
from kubechronicle.ops.client.restoring.steps import Restorer
from kubechronicle.ops.client.restoring.user_changes import read_changes, reversals
from kubechronicle.ops.client.revision_reader import RevisionQuery, scopes_of
from kubechronicle.ops.client.session import Session
from kubechronicle.ops.errors import OperatorError

# Seconds to wait for objects in deletion: a browser waits for the answer.
TIMEOUT: Final = 60.0
Answer = tuple[int, Object]


class NotedScreen(Screen):
    """Keeps the remarks of a planner, instead of printing them."""

    def __init__(self) -> None:
        super().__init__(argparse.Namespace(output="json", color="never"))
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)


class PageRestores:
    """Answers the page's requests to plan and to carry out a restore."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def answer(self, body: bytes) -> Answer:
        """Return the HTTP status and the JSON of the answer. Blocks while the plan is made or carried out."""
        try:
            return self._answer(orjson.loads(body))
        except (orjson.JSONDecodeError, KeyError, TypeError, ValueError, AttributeError):
            return 400, {"message": "the request is not a restore"}
        except OperatorError as error:
            return 400, {"message": str(error)}

    def _answer(self, asked: Any) -> Answer:
        words, namespace = [str(word) for word in asked["words"]], str(asked["namespace"])
        if not words and not namespace:
            raise OperatorError("a restore names an object or a namespace")
        arguments = argparse.Namespace(
            words=words,
            namespace=namespace,
            prune=False,
            replace=bool(asked.get("replace")),
            timeout=TIMEOUT,
            with_consequences=bool(asked.get("consequences")),
        )
        client = self._client.replaced(namespace=namespace or self._client.namespace)
        screen = NotedScreen()
        session = Session(arguments, client, screen)
        if "revision" in asked:
            return _agreed(client, asked, _undoing(session, int(asked["revision"])))
        planner = Planner(session, client.resolve_moment(str(asked["to"])))
        if asked.get("plan") is not None:
            planner.wait_for_namespace()
        plan = planner.plan()
        notes = [*screen.notes, *planner.unknown]
        return _agreed(client, asked, Offer(planner.moment, notes, planner.unread, plan, planner.restorer()))


class Offer(NamedTuple):
    """A plan for the page. ``moment``: of the state after it, "" for none."""

    moment: str
    notes: list[str]
    unread: Mapping[str, str]
    plan: Sequence[Step]
    restorer: Restorer


def _agreed(client: Client, asked: Any, offer: Offer) -> Answer:
    """Return a plan or, if the request has its digest, the results of its steps."""
    shown = asked.get("plan")
    document: Object = {
        "moment": offer.moment,
        "notes": offer.notes,
        "unread": dict(offer.unread),
        "steps": [step_document(step) for step in offer.plan],
        "plan": digest(offer.plan),
    }
    if shown is None:
        return 200, document
    if shown != document["plan"]:
        return 409, document | {"message": "the cluster has changed since this plan was made; look at it again"}
    steps = agreed(offer.plan, replace=bool(asked.get("replace")))
    return 200, document | {"results": []} | execution_document(execute(client, offer.restorer, steps, "restoring"))


def _undoing(session: Session, revision: int) -> Offer:
    """Return the plan that undoes one change, as `revert` makes it. OperatorError."""
    client, present = session.client, session.kinds()
    subject = session.subject(session.arguments.words, present)
    bounds = {"revision.from": str(revision), "revision.to": str(revision)}
    kinds = AllKinds(client, present)
    changes = read_changes(client, kinds, RevisionQuery(scopes_of(subject), bounds))
    if not changes.count:
        raise OperatorError(f"revision {revision} is no change of {subject.description}")
    of_owners = {(kind.group, kind.kind): kind for kind in present.all} | changes.kinds
    trial = Restorer(client, of_owners, timeout=TIMEOUT, dry_run=True)
    plan = tried_plan(trial, reversals(client, changes))
    notes = [f"{name}: {why}" for name, why in kept(plan)]
    steps = [each.step for each in plan if each.step is not None]
    return Offer("", notes, changes.skipped, steps, Restorer(client, of_owners, timeout=TIMEOUT, remerges=False))


def digest(plan: Sequence[Step]) -> str:
    """Return a digest of the changes by the steps, values of Secrets included."""
    steps = [
        [step.action, step.key, [change.operation() for change in step.changes], step.problem, _uid(step)]
        for step in plan
    ]
    import hashlib  # which other commands do not need

    return hashlib.sha256(orjson.dumps(steps, option=orjson.OPT_SORT_KEYS)).hexdigest()


def _uid(step: Step) -> str:
    return str(step.live["metadata"].get("uid", "")) if step.live is not None else ""
