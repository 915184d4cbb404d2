"""Restores that the web page asks for: first the plan, then its steps, if the plan is still the one that was shown.

    request   {"words": ["deployments.apps/web"], "namespace": "shop", "to": "4711", "replace": false}
    answer    {"moment", "notes", "unread", "steps", "plan"}; "plan" is the digest of the steps
              with "consequences": true also what was deleted because of the deletion of these objects
    request   the same with "plan": the digest
    answer    the same with "results"; or 409 with another plan, if the cluster has changed since

The planner and the steps are those of `kubectl chronicle restore`, with the user's own rights. Nothing is pruned.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any, Final

import orjson

from kubechronicle.api.history.restore_plan import Step
from kubechronicle.api.values.objects import Object
from kubechronicle.ops.client.client import Client
from kubechronicle.ops.client.output import Screen
from kubechronicle.ops.client.restoring.documents import agreed, result_document, step_document
from kubechronicle.ops.client.restoring.planner import Planner
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
        except (orjson.JSONDecodeError, KeyError, TypeError, AttributeError):
            return 400, {"message": "the request is not a restore"}
        except OperatorError as error:
            return 400, {"message": str(error)}

    def _answer(self, asked: Any) -> Answer:
        words, namespace, to = [str(word) for word in asked["words"]], str(asked["namespace"]), str(asked["to"])
        if not words and not namespace:
            raise OperatorError("a restore names an object or a namespace")
        replace, shown = bool(asked.get("replace")), asked.get("plan")
        arguments = argparse.Namespace(
            words=words,
            namespace=namespace,
            prune=False,
            replace=replace,
            timeout=TIMEOUT,
            with_consequences=bool(asked.get("consequences")),
        )
        screen = NotedScreen()
        client = self._client.replaced(namespace=namespace or self._client.namespace)
        planner = Planner(Session(arguments, client, screen), client.resolve_moment(to))
        if shown is not None:
            planner.wait_for_namespace()
        plan = planner.plan()
        document: Object = {
            "moment": planner.moment,
            "notes": [*screen.notes, *planner.unknown],
            "unread": planner.unread,
            "steps": [step_document(step) for step in plan],
            "plan": digest(plan),
        }
        if shown is None:
            return 200, document
        if shown != document["plan"]:
            return 409, document | {"message": "the cluster has changed since this plan was made; look at it again"}
        restorer = planner.restorer()
        results = [restorer.do(step) for step in agreed(plan, replace=replace)]
        return 200, document | {"results": [result_document(each) for each in results]}


def digest(plan: Sequence[Step]) -> str:
    """Return a digest of what the steps would do, values of Secrets included."""
    steps = [
        [step.action, step.key, [change.operation() for change in step.changes], step.problem, _uid(step)]
        for step in plan
    ]
    import hashlib  # which other commands do not need

    return hashlib.sha256(orjson.dumps(steps, option=orjson.OPT_SORT_KEYS)).hexdigest()


def _uid(step: Step) -> str:
    return str(step.live["metadata"].get("uid", "")) if step.live is not None else ""
