"""The result of a trial: the effects of each policy by user and namespace, with the newest examples."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from kubechronicle.api.admission.logged_writes import Write
from kubechronicle.api.admission.replays import EFFECTS, ReplayOutcome
from kubechronicle.api.registry.groups import HISTORY
from kubechronicle.api.values.objects import Object
from kubechronicle.api.values.printable import printable
from kubechronicle.ops.client.output import Screen, format_time
from kubechronicle.ops.terminal import counted

MOST_NAMES: Final = 1000
"""Different users, namespaces and messages of a policy that are counted by name. Others are counted together."""
OTHERS: Final = "(others)"
SHOWN: Final = 5
"""Users, namespaces and messages in the text of a policy."""


@dataclass
class Tally:
    """The effects of one policy. ``effects``: the number of writes with each effect."""

    examples: deque[Object]
    effects: Counter[str] = field(default_factory=Counter)
    users: Counter[str] = field(default_factory=Counter)
    namespaces: Counter[str] = field(default_factory=Counter)
    messages: Counter[str] = field(default_factory=Counter)

    def add(self, write: Write, outcomes: Sequence[ReplayOutcome]) -> None:
        self.effects.update({each.effect for each in outcomes})
        _count(self.users, write.who.get("username") or "(unknown)")
        _count(self.namespaces, write.namespace or "(cluster)")
        for message in {each.message for each in outcomes}:
            _count(self.messages, message)
        self.examples.append(_example(write, outcomes))


def _count(counter: Counter[str], name: str) -> None:
    counter[name if name in counter or len(counter) < MOST_NAMES else OTHERS] += 1


def _example(write: Write, outcomes: Sequence[ReplayOutcome]) -> Object:
    request = write.request
    return {
        "revision": str(write.revision),
        "time": write.time,
        "user": write.who.get("username", ""),
        "operation": write.operation,
        "request": {"verb": request.verb, "uri": request.uri, "auditID": request.audit_id},
        "object": shown_object(write),
        "namespace": write.namespace,
        "outcomes": [_outcome(each) for each in outcomes],
    }


def _outcome(outcome: ReplayOutcome) -> Object:
    found = {"effect": outcome.effect, "binding": outcome.binding, "message": outcome.message, "reason": outcome.reason}
    return {name: value for name, value in found.items() if value} | ({"error": True} if outcome.error else {})


def shown_object(write: Write) -> str:
    """Return an object as kubectl writes it: ``deployments.apps/web``, with its subresource."""
    sub = f"/{write.subresource}" if write.subresource else ""
    return f"{write.rt.resource}{sub}/{write.name}"


class Report:
    """The result of one trial. ``examples``: how many of each policy are kept."""

    def __init__(self, examples: int) -> None:
        self._kept = examples
        self.tallies: dict[str, Tally] = {}
        self.read = 0
        self.judged = 0
        self.totals: Counter[str] = Counter()
        self.not_replayed: Counter[str] = Counter()

    def expect(self, sources: Iterable[str]) -> None:
        """List policies that may turn out to have no effect."""
        for source in sources:
            self.tallies.setdefault(source, Tally(deque(maxlen=self._kept)))

    def add(self, write: Write, outcomes: Sequence[ReplayOutcome]) -> None:
        """Count a write that was judged."""
        self.judged += 1
        if not outcomes:
            return
        self.totals.update({each.effect for each in outcomes})
        for source in {each.source: None for each in outcomes}:
            self.expect([source])
            self.tallies[source].add(write, [each for each in outcomes if each.source == source])

    def document(self, head: Object) -> Object:
        """Return the report as an object. ``head``: the period and its limits."""
        return {
            "apiVersion": f"{HISTORY}/v1",
            "kind": "PolicyTrial",
            **head,
            "writes": self.judged,
            "effects": {each: self.totals[each] for each in EFFECTS},
            "policies": [_policy(name, tally) for name, tally in self.tallies.items()],
            "notReplayed": [{"reason": why, "count": count} for why, count in self.not_replayed.most_common()],
        }

    def print(self, screen: Screen, period: str) -> None:
        """Print the report as text. ``period``: "between A and B"."""
        judged = counted(self.judged, "write")
        if not self.totals:
            screen.line(f"None of {judged} {period} would have been refused, warned, audited or mutated.")
        else:
            found = ", ".join(f"{self.totals[each]:,} {each}" for each in EFFECTS if self.totals[each])
            screen.line(f"Of {judged} {period}: {found}.")
        for name, tally in self.tallies.items():
            screen.line()
            _print_policy(screen, name, tally)
        if self.not_replayed:
            screen.line()
            screen.line("Not judged:")
            for why, count in self.not_replayed.most_common():
                screen.line(f"  {count:>9,}  {why}")


def _policy(name: str, tally: Tally) -> Object:
    return {
        "name": name,
        "effects": {each: tally.effects[each] for each in EFFECTS},
        "users": _named(tally.users),
        "namespaces": _named(tally.namespaces),
        "messages": [{"message": each["name"], "count": each["count"]} for each in _named(tally.messages)],
        "examples": list(tally.examples)[::-1],
    }


def _named(counter: Counter[str]) -> list[dict[str, Any]]:
    return [{"name": name, "count": count} for name, count in counter.most_common()]


def _print_policy(screen: Screen, name: str, tally: Tally) -> None:
    effects = ", ".join(f"{tally.effects[each]:,} {each}" for each in EFFECTS if tally.effects[each])
    screen.line(f"{printable(name)}: {effects or 'no effect'}")
    if not effects:
        return
    for title, counter in (("messages", tally.messages), ("users", tally.users), ("namespaces", tally.namespaces)):
        screen.line(f"  {title}")
        for each, count in counter.most_common(SHOWN):
            screen.line(f"    {count:>9,}  {printable(each)}")
        if len(counter) > SHOWN:
            screen.line(f"               and {len(counter) - SHOWN:,} more; -o json has them")
    if tally.examples:
        screen.line("  newest examples")
    for example in list(tally.examples)[::-1]:
        place = f" -n {example['namespace']}" if example["namespace"] else ""
        user, thing = printable(example["user"]), printable(example["object"])
        screen.line(f"    {format_time(example['time'])}  {user}  {example['operation']} {thing}{place}")
        for outcome in example["outcomes"]:
            screen.line(f"      {outcome['effect']}: {printable(outcome['message'])}")
