"""Shrinking: the smallest sequence and body that still show a difference of the same signature."""

from __future__ import annotations

import contextlib
import copy
import json
import multiprocessing
import time
from collections.abc import Iterator
from typing import Any, Protocol

import yaml

from kubechronicle.ops.development.differential.grouping import Example, Group, Groups, signature
from kubechronicle.ops.development.differential.steps import Conversation, Exchange, Step
from kubechronicle.ops.development.differential.transport import Connection
from kubechronicle.ops.development.differential.work import Judge, Plan, play, tag

GROUPS = 60  # the largest groups of each verdict are shrunk
ATTEMPTS = 60  # replays for one group
SECONDS = 240.0  # for all groups


def replay(plan: Plan, seed: str) -> int:
    """Play one sequence and print its steps and differences."""
    exchanges, findings = play(plan, seed, Conversation(Connection(plan.reference), Connection(plan.ours), tag()))
    by_index = {finding.index: finding for finding in findings}
    for index, exchange in enumerate(exchanges):
        step = exchange.step
        print(f"{index + 1}. {step.method} {step.path} {step.headers or ''} {(step.wire() or '')[:3000]}")
        print(f"   reference {exchange.want.status}, ours {exchange.have.status}")
        for difference in by_index[index].differences if index in by_index else ():
            print(f"   {difference.verdict}: {difference.type} {difference.place}")
            print(f"      reference: {difference.want}\n      ours:      {difference.have}")
    return 0


class Plays(Protocol):
    """Plays steps, and tells a difference of a signature."""

    def difference(self, steps: list[Step], wanted: tuple[str, str, str]) -> Exchange | None: ...


class Player:
    """Sends given steps to both servers, in a fresh namespace each time."""

    def __init__(self, plan: Plan) -> None:
        self._connections = Connection(plan.reference), Connection(plan.ours)

    def difference(self, steps: list[Step], wanted: tuple[str, str, str]) -> Exchange | None:
        """Return the last exchange if it is the one that shows a new difference of the signature."""
        conversation = Conversation(*self._connections, tag())
        conversation.begin()
        judge, last = Judge(), None
        for step in steps:
            last = conversation.say(step)
            found, _ = judge(last)
            shown = any(signature(one, step.kind) == wanted for one in found)
            if step is not steps[-1] and (shown or judge.apart):
                clean(conversation, steps)
                return None
        clean(conversation, steps)
        return last if last is not None and shown else None


def clean(conversation: Conversation, steps: list[Step]) -> None:
    """Delete the cluster-scoped object of a replay."""
    first = steps[0]
    if "/namespaces/" not in first.path and first.method == "POST" and not first.dry_run:
        conversation.say(Step("DELETE", first.path.split("?")[0] + "/${name}", area="other"))


class Shrinker:
    """Shrinks one example within a number of replays."""

    def __init__(self, player: Plays, group: Group, attempts: int = ATTEMPTS) -> None:
        self._player, self._wanted, self._left = player, group.signature, attempts
        self.last: Exchange | None = None

    def shows(self, steps: list[Step]) -> bool:
        if self._left <= 0:
            return False
        self._left -= 1
        exchange = self._player.difference(steps, self._wanted)
        if exchange is not None:
            self.last = exchange
        return exchange is not None

    def shrink(self, steps: list[Step]) -> list[Step] | None:
        """Return fewer and smaller steps, or None where the steps alone do not show the difference."""
        if not self.shows(steps):
            return None
        steps = self._without_steps(steps)
        steps = self._plainer(steps)
        return self._smaller_bodies(steps)

    def _without_steps(self, steps: list[Step]) -> list[Step]:
        stored = [step for step in steps[:-1] if step.verb == "create" and not step.dry_run][-1:]
        for start in ([steps[-1]], [*stored, steps[-1]]):
            if len(start) < len(steps) and self.shows(start):
                return start
        for step in list(steps[:-1]):
            fewer = [one for one in steps if one is not step]
            if self.shows(fewer):
                steps = fewer
        return steps

    def _plainer(self, steps: list[Step]) -> list[Step]:
        """Leave out query parameters and headers of the last step."""
        for change in plainer(steps[-1]):
            if self.shows([*steps[:-1], change]):
                return self._plainer([*steps[:-1], change])
        return steps

    def _smaller_bodies(self, steps: list[Step]) -> list[Step]:
        for place in reversed(range(len(steps))):
            tried: set[str] = set()
            while self._left > 0:
                for body in smaller(steps[place].body):
                    key = json.dumps(body, sort_keys=True)
                    if key in tried:
                        continue
                    tried.add(key)
                    changed = [*steps[:place], with_body(steps[place], body), *steps[place + 1 :]]
                    if self.shows(changed):
                        steps = changed
                        break
                    if self._left <= 0:
                        break
                else:
                    break
        return steps


def plainer(step: Step) -> Iterator[Step]:
    if step.text is not None:
        with contextlib.suppress(yaml.YAMLError):
            changed = with_body(step, yaml.load(step.text, Loader=yaml.CSafeLoader))
            changed.text = None
            if step.method != "PATCH":
                changed.headers.pop("Content-Type", None)
            yield changed
    path, _, query = step.path.partition("?")
    pairs = query.split("&") if query else []
    for index in range(len(pairs)):
        rest = [*pairs[:index], *pairs[index + 1 :]]
        changed = copy.deepcopy(step)
        changed.path = path + ("?" + "&".join(rest) if rest else "")
        yield changed
    for name in step.headers:
        if step.method != "PATCH" or name != "Content-Type":
            changed = copy.deepcopy(step)
            del changed.headers[name]
            yield changed


def with_body(step: Step, body: Any) -> Step:
    changed = copy.deepcopy(step)
    changed.body = body
    return changed


def smaller(body: Any) -> Iterator[Any]:
    """Yield copies of a body with one field or item less, those that lose the most first."""
    if not isinstance(body, dict | list):
        return
    places = sorted(paths(body), key=lambda path: -len(json.dumps(at(body, path))))
    for path in places:
        if path in (("apiVersion",), ("kind",), ("metadata",), ("metadata", "name")):
            continue
        copied = copy.deepcopy(body)
        parent = at(copied, path[:-1])
        del parent[path[-1]]
        yield copied


def paths(node: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    items = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for key, value in items:
        yield (*path, key)
        yield from paths(value, (*path, key))


def at(node: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        node = node[key]
    return node


def shrink_all(plan: Plan, groups: Groups) -> None:
    """Shrink the examples of the largest groups, in several processes."""
    chosen = [group for verdict in ("core", "strict") for group in groups.ordered(verdict)[:GROUPS] if group.example]
    context = multiprocessing.get_context("fork")
    until = time.time() + SECONDS
    with context.Pool(plan.workers, initializer=_begin, initargs=(plan, until)) as pool:
        for group, example in zip(chosen, pool.imap(_shrink, chosen), strict=True):
            group.example = example


_player: Player
_until = 0.0


def _begin(plan: Plan, until: float) -> None:
    global _player, _until
    _player, _until = Player(plan), until


def _shrink(group: Group) -> Example:
    example = group.example
    assert example is not None
    if time.time() > _until:
        return example
    shrinker = Shrinker(_player, group)
    try:
        steps = shrinker.shrink([Step(**step) for step in example.steps])
    except Exception as error:  # an example that breaks the tool stays as it is
        print(f"  not shrunk: {group.signature}: {error!r}", flush=True)
        return example
    if steps is None or shrinker.last is None:
        example.reproduced = False
        return example
    last = shrinker.last
    shown = [one for one in Judge()(last)[0] if signature(one, last.step.kind) == group.signature]
    return Example(
        example.seed, [step.plain() for step in steps], shown[0] if shown else example.difference,
        last.want_form, last.have_form, shrunk=True, reproduced=True,
    )  # fmt: skip
