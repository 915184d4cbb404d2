"""Durations of the compilation and evaluation of rules, which the server measures with its own clock.

As in kube-apiserver, each part of a schema with rules counts on its own, and the rules of policies and match
conditions do not count (apiextensions-apiserver ``pkg/apiserver/schema/cel``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

Count = Callable[[float], None]


class RuleMeasures(NamedTuple):
    """``clock``: returns seconds. ``compiled``, ``evaluated``: count the seconds of one part of a schema; threads may
    call them at the same time."""

    clock: Callable[[], float]
    compiled: Count
    evaluated: Count
