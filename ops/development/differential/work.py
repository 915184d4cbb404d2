"""Workers: processes that play sequences against both servers, and collect differences by group."""

from __future__ import annotations

import multiprocessing
import queue
import secrets
import time
import traceback
from collections import Counter
from dataclasses import dataclass, field
from random import Random
from typing import Any

from kubechronicle.ops.development.differential.catalogue import Catalogue, Resource
from kubechronicle.ops.development.differential.compare import Difference, compare
from kubechronicle.ops.development.differential.grouping import Example, Groups, signature
from kubechronicle.ops.development.differential.seeds import Seeds
from kubechronicle.ops.development.differential.sequences import AREAS, Sequence
from kubechronicle.ops.development.differential.steps import Conversation, Exchange
from kubechronicle.ops.development.differential.transport import Connection, Target

WORKERS = 4
WEIGHTS = {"Pod": 4, "Service": 3, "Deployment": 2, "StatefulSet": 2, "Job": 2, "Node": 2}  # kinds with many rules
REPORT_EVERY = 5.0  # seconds


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything that a run depends on."""

    reference: Target
    ours: Target
    seed: str
    catalogue: Catalogue
    seeds: Seeds
    seconds: float = 600.0
    requests: int = 0
    areas: frozenset[str] = frozenset(AREAS)
    kinds: frozenset[str] = frozenset()
    workers: int = WORKERS

    def resources(self) -> list[Resource]:
        return [
            one
            for one in self.catalogue.resources
            if not self.kinds or one.plural in self.kinds or one.kind in self.kinds
        ]


@dataclass(slots=True)
class Totals:
    """Counts of compared requests, by verdict, area and kind."""

    requests: int = 0
    core: int = 0
    strict: int = 0
    after: int = 0
    sequences: int = 0
    areas: Counter[tuple[str, str]] = field(default_factory=Counter)
    kinds: Counter[tuple[str, str]] = field(default_factory=Counter)
    codes: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)

    def add(self, other: Totals) -> None:
        self.requests += other.requests
        self.core += other.core
        self.strict += other.strict
        self.after += other.after
        self.sequences += other.sequences
        self.areas += other.areas
        self.kinds += other.kinds
        self.codes += other.codes
        self.failures = (self.failures + other.failures)[:20]


@dataclass(slots=True)
class Finding:
    """The new differences of one step."""

    index: int
    exchange: Exchange
    differences: list[Difference]
    after: bool


def sequence_of(plan: Plan, seed: str) -> Sequence:
    """Return the sequence of a seed: its resource and all its choices."""
    rng = Random(seed)
    resources = plan.resources()
    resource = rng.choices(resources, [WEIGHTS.get(one.kind, 1) for one in resources])[0]
    return Sequence(rng, plan.catalogue, plan.seeds, resource, plan.areas)


def play(plan: Plan, seed: str, conversation: Conversation) -> tuple[list[Exchange], list[Finding]]:
    """Play one sequence. Differences known from its earlier steps are not new."""
    talk = sequence_of(plan, seed).talk()
    exchanges: list[Exchange] = []
    findings: list[Finding] = []
    conversation.begin()
    judge = Judge()
    try:
        step = next(talk)
        while True:
            exchange = conversation.say(step)
            exchanges.append(exchange)
            if step.area != "other":
                found, after = judge(exchange)
                if found:
                    findings.append(Finding(len(exchanges) - 1, exchange, found, after))
                if judge.apart:
                    break
            step = talk.send(exchange)
    except StopIteration:
        pass
    return exchanges, findings


class Judge:
    """Tells new differences of a sequence from those that follow from earlier ones."""

    def __init__(self) -> None:
        self.known: set[tuple[str, str, str]] = set()
        self.apart = False  # one server has the object or its change, the other one does not

    def __call__(self, exchange: Exchange) -> tuple[list[Difference], bool]:
        found = compare(exchange)
        fresh = []
        for difference in found:
            key = signature(difference, exchange.step.kind)
            if key not in self.known:
                fresh.append(difference)
        stored = exchange.step.writes
        taken = (exchange.want.status < 300, exchange.have.status < 300)
        if stored and found and any(taken):
            self.known |= {signature(difference, exchange.step.kind) for difference in found}
            self.apart = self.apart or taken[0] != taken[1]
        return fresh, bool(found) and not fresh


def collect(plan: Plan, seed: str, conversation: Conversation, totals: Totals, groups: Groups) -> None:
    exchanges, findings = play(plan, seed, conversation)
    totals.sequences += 1
    for exchange in exchanges:
        if exchange.step.area != "other":
            totals.requests += 1
            totals.codes[f"{exchange.step.verb.split()[-1]} {exchange.want.status}"] += 1
            totals.areas[exchange.step.area, "requests"] += 1
            totals.kinds[exchange.step.kind, "requests"] += 1
    steps = [exchange.step.plain() for exchange in exchanges]
    for finding in findings:
        verdicts = {difference.verdict for difference in finding.differences}
        verdict = "core" if "core" in verdicts else "strict"
        setattr(totals, verdict, getattr(totals, verdict) + 1)
        step = finding.exchange.step
        totals.areas[step.area, verdict] += 1
        totals.kinds[step.kind, verdict] += 1
        seen = set()
        for difference in finding.differences:
            key = signature(difference, step.kind)
            if key in seen:
                continue
            seen.add(key)
            group = groups.add(difference, step.kind, step.verb)
            example = Example(
                seed, steps[: finding.index + 1], difference, finding.exchange.want_form, finding.exchange.have_form
            )
            if group.example is None or example.size < group.example.size:
                group.example = example


def tag() -> str:
    return secrets.token_hex(4)


def work(plan: Plan, number: int, until: float, results: multiprocessing.Queue[Any]) -> None:
    """Play its share of the sequences until the time is over, or the worker has its share of the requests."""
    reference, ours = Connection(plan.reference), Connection(plan.ours)
    index, totals, groups, reported = number, Totals(), Groups(), time.monotonic()
    asked, share = 0, -(-plan.requests // plan.workers)
    while time.time() < until and not (plan.requests and asked >= share):
        before = totals.requests
        seed = f"{plan.seed}:{index}"
        try:
            collect(plan, seed, Conversation(reference, ours, tag()), totals, groups)
        except Exception:  # a mistake of the generator loses one sequence, not the run
            totals.failures.append(f"{seed}: {traceback.format_exc(limit=-3)}")
            reference.close()
            ours.close()
        asked += totals.requests - before
        index += plan.workers
        if time.monotonic() - reported > REPORT_EVERY:
            results.put((number, totals, groups))
            totals, groups, reported = Totals(), Groups(), time.monotonic()
    results.put((number, totals, groups))
    results.put((number, None, None))


def run(plan: Plan) -> tuple[Totals, Groups, float]:
    """Run all workers. Return the totals, the groups and the seconds."""
    context = multiprocessing.get_context("fork")
    results: multiprocessing.Queue[Any] = context.Queue()
    began = time.monotonic()
    until = time.time() + plan.seconds
    workers = [
        context.Process(target=work, args=(plan, number, until, results), daemon=True) for number in range(plan.workers)
    ]
    for worker in workers:
        worker.start()
    totals, groups, left, printed = Totals(), Groups(), plan.workers, 0.0
    while left:
        try:
            _, more, found = results.get(timeout=120)
        except queue.Empty:
            break
        if more is None:
            left -= 1
            continue
        totals.add(more)
        groups.merge(found)
        now = time.monotonic()
        if now - printed > 10:
            printed = now
            print(
                f"  {now - began:5.0f} s  {totals.requests} requests, {totals.core} differ in core, "
                f"{totals.strict} in strict only",
                flush=True,
            )
    for worker in workers:
        worker.join(10)
    return totals, groups, time.monotonic() - began
