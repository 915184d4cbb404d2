"""The work of one connection: bounds on what it does in one pass of the event loop, and on what serves no request.

Bytes do not tell the work. A SETTINGS frame changes each open stream, a WINDOW_UPDATE wakes each one that waits, and a
body of one-byte chunks has more chunks than a large list has objects. So each loop over such items counts them:

    work.left -= cost                   counts work of this pass
    if work.left < 0: await work.rest() lets all other tasks run
    work.waste(cost)                    counts work without a request; False if there was too much in this second

A unit is about a microsecond. Decoders of bytes stay without I/O: whoever feeds them counts what they yield.
"""

from __future__ import annotations

from typing import Final

import trio

PASS: Final = 4_000
"""Units of one connection in one pass. Others wait so long for it, a tenth of what they may wait for anything."""
WASTE: Final = 10_000
"""Frames without a request between two calls of `renew`, or as much work; more is abuse (CVE-2019-9512 and its
successors)."""
REQUEST: Final = 200
"""Units of a request until it waits for something or is answered."""
TOGETHER: Final = PASS // REQUEST
"""Requests that are ended in one pass: the end of each is work for the task that answers it."""
FRAME: Final = 3
"""Units of a frame of HTTP/2, SPDY or a WebSocket, whatever is in it."""


class Work:
    """The counts of one connection. ``left``: units of this pass; negative when others should run."""

    __slots__ = ("_wasted", "left")

    def __init__(self) -> None:
        self.left = PASS
        self._wasted = 0

    def waste(self, cost: int) -> bool:
        """Count work that serves no request. False: the connection has done too much of it."""
        self.left -= cost
        self._wasted += cost
        return self._wasted <= WASTE

    def renew(self) -> None:
        """Forget the waste; called once a second."""
        self._wasted = 0

    async def rest(self) -> None:
        """Let all other tasks run, and begin another pass."""
        await trio.lowlevel.checkpoint()
        self.left = PASS
