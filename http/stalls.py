"""Stalls of the event loop: passes longer than STALL, as metrics and as lines of the server's log.

    W… "The event loop stood still" seconds=0.41 cpu=0.40 cause="computing" step="planner.py _fold < rules.py evaluate"
    verb="create" uri="/apis/…" auditID="…" user="carl" client="10.0.0.7"

One event loop serves all clients, so a pass that computes for long is silence for everybody. The loop notes when each
pass begins, and compares the time at its end; more would make each request dearer. A thread looks at the loop every
LOOK seconds. While a pass lasts, it sends SIGURG to the loop's thread, whose handler takes a sample of its own stack:
Python crashes if one thread reads the local variables of another that runs. The request is among those of the filters.
A long call in C is sampled when it returns, in its caller. A stall has the step of most samples:

    pass begins   +25 ms   +45   +65      pass ends at 80 ms
                  rules    rules encode   → rules, 80 ms

A cause is one of these, by the CPU that the loop's thread used, and that of all threads:

    computing    the loop's thread used the time
    collecting   it searched for garbage
    lock         other threads used it: one of them held the interpreter's lock, such as a long call in C
    waiting      nobody used it: the machine gave no core, or a call on the loop waited for a disk

A thread that holds the lock keeps the looking thread waiting, too, even when no pass is under way. So a late look
counts as a stall. Its step is that of the thread with the most CPU.
"""

from __future__ import annotations

import gc
import logging
import signal
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final

import trio
from prometheus_client import Histogram

from kubechronicle.http.context import Context, shown_uri
from kubechronicle.http.messages import Request
from kubechronicle.http.operators import thread_times
from kubechronicle.http.wire.connection import Connection

log = logging.getLogger(__name__)

STALL: Final = 0.05
"""Seconds of a pass from which it is a stall."""
LOOK: Final = 0.02
"""Seconds between two looks of the thread, so that each stall of a busy loop is seen twice. A look takes 0.1 ms."""
QUIET_LOOK: Final = 0.1
"""The same while the loop is quiet. The step of a shorter stall may remain unknown then."""
BUSY: Final = 0.1
"""The share of a core from which a loop is busy."""
LONG: Final = 5.0
"""Seconds of a stall after which it is logged before its end, too."""
BUCKETS: Final = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0)
MOST_LINES: Final = 10
"""Lines in each period of LINES_PERIOD seconds; the next line says how many were left out."""
LINES_PERIOD: Final = 10.0
MOST_STEPS: Final = 64
"""Different steps of one stall that are counted, and samples that wait for the thread."""
SAMPLING: Final = signal.SIGURG
"""The signal of a sample. Without a handler, it is ignored."""
MOST_ENDED: Final = 64
"""Stalls that wait for the thread."""
FRAMES: Final = 5
"""Frames of a step."""
THREADS_EVERY: Final = 50
"""Looks after which the CPU of all threads is noted anew."""
MAX_TEXT: Final = 512
_OURS: Final = str(Path(__file__).parents[1])
"""The folder of this package, as its modules are imported."""


@dataclass(frozen=True, slots=True)
class LoopStep:
    """A step of a stall: the frames that ran, and the request that they served, as values for the log."""

    frames: str
    request: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Ended:
    """A pass of the loop that was a stall. ``cpu``: of its thread, at the end. ``collected``: seconds of the pass that
    the collector of garbage took."""

    began: float
    seconds: float
    cpu: float
    collected: float


@dataclass(slots=True)
class _Used:
    """The CPU of the loop's thread and of the process at a look."""

    at: float = 0.0
    loop: float = 0.0
    process: float = 0.0


class StallWatch:
    """The watch over one event loop. ``durations``: the metric. ``count``: stalls so far."""

    def __init__(self) -> None:
        self.durations = Histogram(
            "kubechronicle_event_loop_stall_duration_seconds",
            "Passes of the event loop longer than 50 ms, by cause.",
            ("cause",),
            buckets=BUCKETS,
            registry=None,
        )
        self.cpu = Histogram(
            "kubechronicle_event_loop_stall_cpu_seconds",
            "CPU of the event loop's thread in passes longer than 50 ms.",
            buckets=(0.05, *BUCKETS),
            registry=None,
        )
        for cause in ("computing", "collecting", "lock", "waiting"):
            self.durations.labels(cause)
        self._began = 0.0  # of the pass under way; 0: the loop waits
        self._ended: deque[Ended] = deque(maxlen=MOST_ENDED)
        self._samples: deque[tuple[float, LoopStep]] = deque(maxlen=MOST_STEPS)  # with the beginning of the pass
        self._collecting = self._collected = 0.0
        self._lines = _Lines()

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Watch the event loop of this task until it is cancelled."""
        running = threading.Lock()
        running.acquire()
        # Python handles signals in its main thread alone: the steps of a loop elsewhere stay unknown.
        samples = threading.current_thread() is threading.main_thread()
        former = signal.signal(SAMPLING, self._take_sample) if samples else None
        looking = _Looking(self, threading.get_ident(), running, samples=samples)
        thread = threading.Thread(target=looking.run, name="stall-watch", daemon=True)
        pulse = _Pulse(self)
        trio.lowlevel.add_instrument(pulse)
        gc.callbacks.append(self._on_collection)
        thread.start()
        try:
            task_status.started()
            await trio.sleep_forever()
        finally:
            gc.callbacks.remove(self._on_collection)
            trio.lowlevel.remove_instrument(pulse)
            running.release()
            thread.join()
            if samples:
                signal.signal(SAMPLING, former)

    def _take_sample(self, _: int, frame: FrameType | None) -> None:
        if self._began and frame is not None:
            self._samples.append((self._began, step_of(frame, with_request=True)))

    def _on_collection(self, phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            self._collecting = time.monotonic()
        else:
            self._collected += time.monotonic() - self._collecting

    def report(self, ended: Ended, *, used: float, others: float, step: LoopStep | None) -> None:
        """Count a stall, and log it. ``used``: CPU of the loop's thread in it; ``others``: of the other threads."""
        half = ended.seconds / 2
        if ended.collected > half:
            cause = "collecting"
        elif used > half:
            cause = "computing"
        else:
            cause = "lock" if others > half else "waiting"
        self.durations.labels(cause).observe(ended.seconds)
        self.cpu.observe(used)
        values = {"seconds": round(ended.seconds, 3), "cpu": round(used, 3), "cause": cause}
        self._lines.write("The event loop stood still", values, step)

    def report_present(self, seconds: float, step: LoopStep | None) -> None:
        """Log a stall that has not ended: it may never do."""
        self._lines.write("The event loop stands still", {"seconds": round(seconds, 3)}, step)


class _Pulse(trio.abc.Instrument):
    """Notes the beginning of each pass, and looks at its length at the end."""

    def __init__(self, watch: StallWatch) -> None:
        self._watch = watch

    def after_io_wait(self, timeout: float) -> None:
        self._watch._began = time.monotonic()
        self._watch._collected = 0.0

    def before_io_wait(self, timeout: float) -> None:
        watch = self._watch
        began = watch._began
        watch._began = 0.0
        if began and (seconds := time.monotonic() - began) > STALL:
            watch._ended.append(Ended(began, seconds, time.thread_time(), watch._collected))


class _Lines:
    """A limit on the lines of the log."""

    def __init__(self) -> None:
        self._until = 0.0
        self._written = self._left_out = 0

    def write(self, message: str, values: dict[str, Any], step: LoopStep | None) -> None:
        now = time.monotonic()
        if now >= self._until:
            self._until, self._written = now + LINES_PERIOD, 0
        if self._written >= MOST_LINES:
            self._left_out += 1
            return
        self._written += 1
        if self._left_out:
            values["suppressed"], self._left_out = self._left_out, 0
        values["step"] = step.frames if step is not None else "unknown"
        log.warning(message, extra=values | dict(step.request if step is not None else ()))


@dataclass(slots=True)
class _Looking:
    """The thread that looks at the loop, until it gets the lock. ``loop``: the identity of the loop's thread."""

    watch: StallWatch
    loop: int
    running: threading.Lock
    samples: bool
    steps: Counter[LoopStep] = field(default_factory=Counter)
    sampled: float = 0.0  # the beginning of the pass that the steps are of
    long: float = 0.0  # the beginning of the last pass that was logged before its end
    before: _Used = field(default_factory=_Used)  # at the last look before that pass
    threads: dict[int, int] = field(default_factory=dict)  # nanoseconds of CPU
    looks: int = 0

    def run(self) -> None:
        # Only Linux tells the time of another thread.
        linux = sys.platform == "linux"
        clock = time.pthread_getcpuclockid(self.loop) if linux else time.CLOCK_PROCESS_CPUTIME_ID
        self.before = last = self._used(clock)
        pause = LOOK
        while not self.running.acquire(timeout=pause):
            began = self.watch._began
            now = self._used(clock)
            if began and now.at - began > LOOK:
                if self.sampled != began:
                    self.sampled, self.before = began, last
                    self.steps.clear()
                self._sample()
                self._count_samples()
                if now.at - began > LONG and self.long != began:
                    self.long = began
                    self.watch.report_present(now.at - began, self._most_sampled())
            ended = False
            self._count_samples()
            while self.watch._ended:
                self._report(self.watch._ended.popleft(), now, last)
                ended = True
            late = now.at - last.at - pause
            if late > STALL and not ended and not (began and now.at - began > late / 2):
                self._report_lateness(late, now, last)
            pause = LOOK if began or now.loop - last.loop > BUSY * (now.at - last.at) else QUIET_LOOK
            last = now
            self.looks += 1
            if self.looks % THREADS_EVERY == 1:
                self.threads = thread_times()

    def _used(self, clock: int) -> _Used:
        return _Used(time.monotonic(), time.clock_gettime(clock), time.process_time())

    def _sample(self) -> None:
        if self.samples:
            signal.pthread_kill(self.loop, SAMPLING)

    def _count_samples(self) -> None:
        """Count the samples of the last pass that was seen."""
        samples = self.watch._samples
        while samples:
            began, step = samples.popleft()
            if began == self.sampled and (step in self.steps or len(self.steps) < MOST_STEPS):
                self.steps[step] += 1

    def _most_sampled(self) -> LoopStep | None:
        """Return the step with the most samples, of the request with the most."""
        requests: Counter[tuple[tuple[str, str], ...]] = Counter()
        for step, samples in self.steps.items():
            requests[step.request] += samples
        request = max(requests, key=lambda each: requests[each], default=())
        steps = [step for step, _ in self.steps.most_common() if step.request == request]
        return steps[0] if steps else None

    def _report(self, ended: Ended, now: _Used, last: _Used) -> None:
        """Report a pass. The looks at the clocks are up to LOOK earlier than its beginning, so the time bounds them."""
        seen = ended.began == self.sampled
        before = self.before if seen else last
        used = min(ended.seconds, max(0.0, ended.cpu - before.loop))
        others = max(0.0, now.process - before.process - (now.loop - before.loop))
        step = self._most_sampled() if seen else None
        if used < ended.seconds / 2 and others > ended.seconds / 2:
            step = self._heaviest() or step
        self.watch.report(ended, used=used, others=others, step=step)

    def _report_lateness(self, late: float, now: _Used, last: _Used) -> None:
        """Report a look that was late although no pass is: a thread held the lock, while the loop wanted to go on or
        had nothing to do. A machine that gave no core is no stall of the loop, unless a pass is late, too."""
        others = now.process - last.process - (now.loop - last.loop)
        if others > late / 2:
            ended = Ended(last.at, late, now.loop, self.watch._collected)
            self.watch.report(ended, used=now.loop - last.loop, others=others, step=self._heaviest())

    def _heaviest(self) -> LoopStep | None:
        """Return the step of the thread with the most CPU of late, other than the loop's."""
        used = {each: cpu - self.threads.get(each, 0) for each, cpu in thread_times().items() if each != self.loop}
        frame = sys._current_frames().get(max(used, key=lambda each: used[each])) if used else None
        return step_of(frame) if frame is not None else None


def step_of(frame: FrameType, *, with_request: bool = False) -> LoopStep:
    """Return the innermost frames of a stack. ``with_request``: and the request that it serves; of this thread only."""
    frames: list[str] = []
    request: Request | None = None
    context: Context | None = None
    client = ""
    each: FrameType | None = frame
    while each is not None:
        code = each.f_code
        if (not frames or code.co_filename.startswith(_OURS)) and len(frames) < FRAMES:
            frames.append(_name(code))  # the innermost one may be a library's
        names = code.co_varnames if with_request else ()
        if context is None and "context" in names and isinstance(found := each.f_locals.get("context"), Context):
            context = found
        if request is None and "request" in names and isinstance(found := each.f_locals.get("request"), Request):
            request = found
        if not client and "self" in names and isinstance(owner := each.f_locals.get("self"), Connection):
            client = owner.client[0]
        each = each.f_back
    return LoopStep(" < ".join(frames), tuple(_described(request, context, client)))


def _name(code: CodeType) -> str:
    return f"{Path(code.co_filename).name} {code.co_qualname}"


def _described(request: Request | None, context: Context | None, client: str) -> Iterator[tuple[str, str]]:
    if context is None and request is not None:
        attached = request._attached
        context = attached if isinstance(attached, Context) else None
    if context is not None:
        yield "verb", context.info.verb
    if request is not None:
        yield "uri", shown_uri(request)[:MAX_TEXT]
    if context is not None:
        yield "auditID", context.audit_id[:MAX_TEXT]
        yield "user", context.user.name[:MAX_TEXT]
    if client or request is not None:
        yield "client", client or (request.client[0] if request is not None else "")
