"""A wake-up that carries no value: trio makes an outcome for each, which three calls of Python take apart again."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator
from typing import Final, TypeVar

import outcome

ResultT = TypeVar("ResultT")


class _Woken(outcome.Outcome[None]):
    """The outcome None, which may be used any number of times."""

    def unwrap(self) -> None:
        return None

    def send(self, gen: Generator[ResultT, None, object]) -> ResultT:
        return gen.send(None)

    async def asend(self, agen: AsyncGenerator[ResultT, None]) -> ResultT:
        return await agen.asend(None)


WOKEN: Final = _Woken()
"""For ``trio.lowlevel.reschedule``, if nobody looks at what ``wait_task_rescheduled`` returns."""
