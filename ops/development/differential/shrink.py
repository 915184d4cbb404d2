"""Shrinking: the smallest request that still shows a difference of the same signature."""

from __future__ import annotations

from kubechronicle.ops.development.differential.grouping import Groups
from kubechronicle.ops.development.differential.steps import Conversation
from kubechronicle.ops.development.differential.transport import Connection
from kubechronicle.ops.development.differential.work import Plan, play, tag


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


def shrink_all(plan: Plan, groups: Groups) -> None:
    pass
