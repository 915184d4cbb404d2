"""Messages between the parent process (workers.py) and a worker (worker.py).

The parent's first message is a StartMessage: eight bytes of length, then JSON. Then the parent sends lines: LEAD (run
the control loops), RETIRE (stop, because a successor has taken over), and STATES with a WorkerStates as JSON, whenever
that changes. The worker sends BEAT twice a second, SERVING once, and READY once, when its /readyz passes first.

Heartbeats: a worker's event loop tells its parent twice a second that it runs. The parent kills one that does not.

    stopped (SIGSTOP), or waiting for something that does not come      killed after HUNG seconds without a beat
    busy: it uses CPU, but its event loop does not come round           killed after BUSY seconds
    starting: it loads the log, long before it serves                   killed after STARTING seconds

Killed, not only asked: a process that goes on later would act as leader beside its successor, and serve on connections
that its clients have given up. SIGKILL is certain, also for a stopped process.

The parent counts its own rounds, not the time. So a pause of the machine, or of the parent, is nobody's fault.
"""

from __future__ import annotations

import ipaddress
import os
import socket
import struct
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import orjson
import trio

from kubechronicle.ops.addresses import ListenAddresses
from kubechronicle.ops.settings.settings import Settings
from kubechronicle.ops.settings.types import IPAddress, IPNetwork

if TYPE_CHECKING:
    import cattrs

LEAD, RETIRE, STATES = b"lead", b"retire", b"states "
SERVING, READY, BEAT = b"serving", b"ready", b"beat"
SEND_TIMEOUT = 1.0  # seconds; the words of one worker's life fit into the socket's buffer
_LENGTH = struct.Struct(">Q")


# -- heartbeats -------------------------------------------------------------------------------------------------------

INTERVAL: Final = 0.5
"""Seconds between two beats, and between two rounds of the parent."""
HUNG: Final = 3.0
BUSY: Final = 10.0
STARTING: Final = 60.0
IDLE_SHARE: Final = 0.1
"""Share of a CPU below which a process counts as stopped or waiting."""


_TICKS_PER_SECOND: Final = os.sysconf("SC_CLK_TCK")


def cpu_seconds(pid: int) -> float:
    """Return the CPU time that a process has used; 0 if there is none."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / _TICKS_PER_SECOND


@dataclass(slots=True)
class Heart:
    """The beats of one worker. ``beat`` notes one; ``problem`` is asked once a round."""

    pid: int
    serving: bool = False
    _beats: int = 0
    _seen: int = -1
    _missed: int = 0
    _cpu: float = field(default=0.0)

    def beat(self) -> None:
        self._beats += 1

    def problem(self) -> str:
        """Return the reason why the worker is to be killed, "" if there is none."""
        if self._beats != self._seen:
            self._seen, self._missed, self._cpu = self._beats, 0, cpu_seconds(self.pid)
            return ""
        self._missed += 1
        late = self._missed * INTERVAL
        if late < HUNG or (not self.serving and late < STARTING):
            return ""
        if cpu_seconds(self.pid) - self._cpu < IDLE_SHARE * late:
            return f"it has been stopped or blocked for {late:g} s"
        return f"its event loop has been busy for {late:g} s" if late >= BUSY else ""


@dataclass(eq=False, slots=True)
class Worker:
    """A worker process as its parent sees it."""

    number: int
    process: trio.Process
    control: trio.SocketStream
    heart: Heart
    started: trio.Event = field(default_factory=trio.Event)  # it serves, or has ended
    ready: trio.Event = field(default_factory=trio.Event)  # its /readyz has passed, or it has ended
    hung: bool = False
    _sending: trio.Lock = field(default_factory=trio.Lock)

    async def send(self, data: bytes) -> None:
        # The task that waits for the process notices a dead worker, and heartbeats one that does not read.
        with suppress(trio.BrokenResourceError, trio.ClosedResourceError), trio.move_on_after(SEND_TIMEOUT):
            async with self._sending:
                await self.control.send_all(data)

    async def listen(self) -> None:
        """Note the worker's words until it ends."""
        received = b""
        try:
            async for data in self.control:
                *lines, received = (received + data).split(b"\n")
                for line in lines:
                    self.heart.beat()
                    if line == SERVING:
                        self.heart.serving = True
                        self.started.set()
                    elif line == READY:
                        self.ready.set()
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass
        finally:
            self.started.set()
            self.ready.set()


@dataclass(frozen=True, slots=True)
class LogEnd:
    """A worker's end of a log: the inherited descriptors of its connection to the hub, and of the hub's page."""

    connection: int
    page: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StartMessage:
    """Everything that a worker needs to start.

    ``settings``: as the parent has them; no database URL if the database is the embedded one
    ``number``: the worker's
    ``listeners``: inherited descriptors of the sockets that the worker accepts from
    ``siblings``: inherited descriptors of the other workers' sockets
    ``logs``: the ends of the logs that the processes share: the main one, then those of the overrides
    """

    settings: Settings
    addresses: ListenAddresses
    number: int
    listeners: tuple[int, ...]
    siblings: tuple[int, ...]
    logs: tuple[LogEnd, ...] = ()

    def to_bytes(self) -> bytes:
        data = orjson.dumps(_converter().unstructure(self))
        return _LENGTH.pack(len(data)) + data


@dataclass(slots=True)
class WorkerStates:
    """The workers as their parent sees them, for the metrics and /readyz of each. ``deaths``: by number.

    ``down``: the numbers without a worker that serves.
    """

    wanted: int = 1
    down: tuple[int, ...] = ()
    deaths: dict[int, int] = field(default_factory=dict)

    def to_line(self) -> bytes:
        deaths = {str(number): count for number, count in self.deaths.items()}
        return STATES + orjson.dumps({"wanted": self.wanted, "down": self.down, "deaths": deaths})

    def follow(self, line: bytes) -> None:
        """Take the states of a line."""
        states = orjson.loads(line.removeprefix(STATES))
        self.wanted, self.down = states["wanted"], tuple(states["down"])
        self.deaths = {int(number): count for number, count in states["deaths"].items()}


def receive_start(parent: socket.socket) -> StartMessage:
    """Receive the first message. Raise EOFError if the parent has ended."""
    (length,) = _LENGTH.unpack(_receive(parent, _LENGTH.size))
    return _converter().structure(orjson.loads(_receive(parent, length)), StartMessage)


@cache
def _converter() -> cattrs.Converter:
    """Return a converter for values that the parent has validated: paths and addresses are texts."""
    import cattrs

    made = cattrs.Converter(detailed_validation=False, unstruct_collection_overrides={tuple: list})
    for text_type in (Path, ipaddress.IPv4Address, ipaddress.IPv6Address, ipaddress.IPv4Network, ipaddress.IPv6Network):
        made.register_unstructure_hook(text_type, str)
    made.register_structure_hook(Path, lambda text, _: Path(text))
    made.register_structure_hook(IPAddress, lambda text, _: ipaddress.ip_address(text))
    made.register_structure_hook(IPAddress | None, _optional_address)
    made.register_structure_hook(IPNetwork, lambda text, _: ipaddress.ip_network(text))
    return made


def _optional_address(text: str | None, _: Any) -> IPAddress | None:
    return ipaddress.ip_address(text) if text is not None else None


def _receive(parent: socket.socket, length: int) -> bytes:
    data = b""
    while len(data) < length:
        more = parent.recv(length - len(data))
        if not more:
            raise EOFError("the parent process has ended")
        data += more
    return data
