"""Parts of both protocols of key services: decrypted keys in memory, and the health of a service.

Invariants: keys in memory are bounded. One task asks the service for a key, however many wait for it. A failed service
is not asked again within PAUSE: a thousand values do not wait for a thousand timeouts.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final

import trio

from kubechronicle.eventlog.encryption.ciphers import Cipher
from kubechronicle.eventlog.encryption.errors import TransformError

# Seconds between checks of a service, and after one that failed; kube-apiserver's calls of Status.
HEALTHY_INTERVAL: Final = 60.0
FAILED_INTERVAL: Final = 10.0
# Seconds in which a check uses the result of the last one.
HEALTHY_TTL: Final = 20.0
FAILED_TTL: Final = 3.0
# Seconds after a failed Decrypt in which the same key, or with an unreachable service any key, is not asked for.
PAUSE: Final = 1.0
FAILURES: Final = 1_000
UNREACHABLE: Final = frozenset({"Unavailable", "DeadlineExceeded"})
# Keys that wait for the readers who have asked for them, where none are kept.
AWAITED: Final = 100


@dataclass(slots=True, eq=False)
class KeyCache:
    """Ciphers of decrypted data keys, by what the service needs to decrypt them. ``size`` 0: each is used once."""

    size: int
    clock: Callable[[], float]
    _ciphers: OrderedDict[bytes, Cipher] = field(default_factory=OrderedDict)
    _failures: OrderedDict[bytes, tuple[float, TransformError]] = field(default_factory=OrderedDict)
    _unreachable: tuple[float, TransformError] | None = None
    _fetching: dict[bytes, trio.Event] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self._ciphers)

    def get(self, key: bytes) -> Cipher | None:
        """Return a cipher; None: ``fetch`` it. TransformError: the service has just failed to decrypt its key."""
        cipher = self._ciphers.get(key)
        if cipher is None:
            self._raise_recent_failure(key)
        elif self.size:
            self._ciphers.move_to_end(key)
        else:
            del self._ciphers[key]
        return cipher

    def _raise_recent_failure(self, key: bytes) -> None:
        for until, error in (each for each in (self._failures.get(key), self._unreachable) if each is not None):
            if self.clock() < until:
                raise TransformError(str(error), code=error.code)

    async def fetch(self, key: bytes, ask: Callable[[], Awaitable[Cipher]]) -> None:
        """Ask the service for a cipher, unless another task does, and keep it, or the error. Raise nothing.

        ``ask``: raises TransformError, or ValueError for an answer that is no key.
        """
        under_way = self._fetching.get(key)
        if under_way is not None:
            await under_way.wait()
            return
        self._fetching[key] = trio.Event()
        try:
            self.keep(key, await ask())
            self._unreachable = None
        except (TransformError, ValueError) as problem:
            error = problem if isinstance(problem, TransformError) else TransformError(str(problem))
            until = self.clock() + PAUSE
            self._failures[key] = until, error
            if error.code in UNREACHABLE:
                self._unreachable = until, error
            while len(self._failures) > FAILURES:
                self._failures.popitem(last=False)
        finally:
            self._fetching.pop(key).set()

    def keep(self, key: bytes, cipher: Cipher) -> None:
        self._ciphers[key] = cipher
        self._ciphers.move_to_end(key)
        while len(self._ciphers) > (self.size or AWAITED):
            self._ciphers.popitem(last=False)
        self._failures.pop(key, None)


@dataclass(slots=True)
class _LastCheck:
    """The result of the last check. ``problem``: "" if it succeeded."""

    problem: str = ""
    at: float = float("-inf")
    ttl: float = FAILED_TTL


@dataclass(slots=True, eq=False)
class KeyServiceHealth:
    """Checks of a key service. ``ask``: returns its problem, or "". ``polls``: they are made without being wanted, too.

    ``run`` must be running, after a first ``check``.
    """

    ask: Callable[[], Awaitable[str]]
    clock: Callable[[], float]
    polls: bool = True
    _checked: _LastCheck = field(default_factory=_LastCheck)
    _checking: trio.Lock = field(default_factory=trio.Lock)
    _wanted: trio.Event = field(default_factory=trio.Event)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Check at intervals, and when a check is wanted, until cancelled."""
        task_status.started()
        if not self.polls:
            await self._wanted.wait()
        while True:
            await self.check()
            interval = FAILED_INTERVAL if self._checked.problem else HEALTHY_INTERVAL
            with trio.move_on_after(interval if self.polls else float("inf")):
                await self._wanted.wait()
            self._wanted = trio.Event()

    async def check(self) -> str:
        """Return the problem of the service, "" if it is healthy: from the last check if that was just now."""
        async with self._checking:
            if self.clock() - self._checked.at >= self._checked.ttl:
                problem = await self.ask()
                self._checked = _LastCheck(problem, self.clock(), FAILED_TTL if problem else HEALTHY_TTL)
            return self._checked.problem

    def request_check(self) -> None:
        """Let ``run`` check soon, unless the last check is recent."""
        if self.clock() - self._checked.at >= self._checked.ttl:
            self._wanted.set()

    @property
    def last_problem(self) -> str:
        """The problem that the last check has found."""
        return self._checked.problem
