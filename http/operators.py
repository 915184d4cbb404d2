"""Pages for operators: /statusz, /flagz, /configz, profiles, metrics of service levels, and ephemeral servers."""

from __future__ import annotations

import gzip
import platform
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from typing import Final

import orjson
import trio
from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from kubechronicle.api.codecs import negotiate
from kubechronicle.api.codecs.whole import encode
from kubechronicle.api.errors import status
from kubechronicle.api.features.gates import FeatureGates
from kubechronicle.eventlog.reset import Reset
from kubechronicle.http.context import Context, author_of
from kubechronicle.http.health import TEXT, Health
from kubechronicle.http.messages import Request, Response
from kubechronicle.http.metrics import CONTENT_TYPE, text_of

NAME: Final = "apiserver"
DEPRECATED: Final = "v1alpha1"
GATES: Final = {"/flagz": "ComponentFlagz", "/statusz": "ComponentStatusz"}
PATHS: Final = ("/flagz", "/healthz", "/livez", "/metrics", "/readyz", "/statusz", "/version")
_WARNING: Final = (
    "Warning: This endpoint is not meant to be machine parseable, has no formatting compatibility guarantees "
    "and is for debugging purposes only."
)


class OperatorPages:
    """Answers the paths of this package.

    ``version``: as /version shows it.
    ``flags``: the values of the flags by name, without secrets.
    ``configuration``: the same as values of JSON.
    ``profiling``: offer /debug/pprof/profile.
    ``features``: the feature gates, which switch /statusz and /flagz.
    """

    def __init__(
        self,
        version: Mapping[str, str],
        flags: Mapping[str, str],
        slis: Slis,
        *,
        configuration: Mapping[str, object],
        profiling: bool = True,
        features: FeatureGates | None = None,
    ) -> None:
        gates = features or FeatureGates()
        self._gated = [path for path, gate in GATES.items() if gates.enabled(gate)]
        self._version = version
        self._flags = flags
        self._slis = slis
        self._configuration = configuration
        self._profiling = profiling
        self._started = time.time()

    def paths(self) -> list[str]:
        """Return the paths answered here that kube-apiserver has, too."""
        return [*self._gated, "/metrics/slis"]

    async def answer(self, request: Request, query: Mapping[str, list[str]]) -> Response | None:
        """Answer a path of this package; None for any other path."""
        match request.path:
            case path if path in GATES and path not in self._gated:
                return None
            case "/statusz":
                return self._page(request, "Statusz", self._status_lines(), self._status())
            case "/flagz":
                lines = [f"{name} {value}" for name, value in sorted(self._flags.items())]
                return self._page(request, "Flagz", lines, {"flags": dict(sorted(self._flags.items()))})
            case "/configz":
                content = orjson.dumps({"kubechronicle": dict(self._configuration)})
                return Response(200, [("content-type", "application/json")], content)
            case "/metrics/slis":
                return self._slis.answer()
            case _ if request.path == PROFILE and self._profiling:
                return await profile(query)
        return None

    def _page(self, request: Request, kind: str, lines: list[str], document: Mapping[str, object]) -> Response:
        context = request.attached(Context)
        form = negotiate.operator_page(request.headers.get("accept"), kind, context.formats)
        if form.media_type == negotiate.TEXT:
            text = "\n".join(["", f"{NAME} {kind.lower()}", _WARNING, *lines, ""])
            return Response(200, [TEXT], text.encode())
        if form.version == DEPRECATED:
            page = kind.lower()
            context.warnings.append(f"This version of the {page} endpoint is deprecated. Please use a newer version.")
        whole = {"kind": kind, "apiVersion": f"{form.group}/{form.version}", "metadata": {"name": NAME}, **document}
        agent = request.headers.get("user-agent")
        is_pretty = form.pretty or negotiate.wants_pretty(context.query.get("pretty"), agent)
        return Response(200, [("content-type", form.media_type)], encode(whole, form.media_type, pretty=is_pretty))

    def _status(self) -> dict[str, object]:
        started = datetime.fromtimestamp(self._started, UTC)
        return {
            "startTime": started.strftime("%Y-%m-%dT%H:%M:%SZ"),
            "uptimeSeconds": int(time.time() - self._started),
            "goVersion": self._version.get("goVersion", f"python{platform.python_version()}"),
            "binaryVersion": self._binary(),
            "emulationVersion": f"{self._version.get('emulationMajor')}.{self._version.get('emulationMinor')}",
            "paths": list(PATHS),
        }

    def _binary(self) -> str:
        return self._version.get("gitVersion", "").removeprefix("v")

    def _status_lines(self) -> list[str]:
        status = self._status()
        started = datetime.fromtimestamp(self._started, UTC)
        return [
            "",
            f"Started: {started.strftime('%a %b %e %H:%M:%S UTC %Y')}",
            f"Up: {_duration(time.time() - self._started)}",
            f"Go version: {status['goVersion']}",
            f"Binary version: {status['binaryVersion']}",
            f"Emulation version: {status['emulationVersion']}",
            f"Paths: {' '.join(PATHS)}",
        ]


def _duration(seconds: float) -> str:
    """Return a duration as people read it: ``1 hr 04 min 18 sec``."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} hr {minutes:02} min {rest:02} sec"


# -- profile -----------------------------------------------------------------------------------------------------------
#
# /debug/pprof/profile: where the CPU time of this process goes, in the format of pprof.
#
#     kubectl get --raw '/debug/pprof/profile?seconds=10' > cpu.pprof      for go tool pprof, speedscope and others
#     kubectl get --raw '/debug/pprof/profile?seconds=10&debug=1'          text: one stack a line, with its microseconds
#
# A timer of the process's CPU time interrupts the event loop HERTZ times a second of CPU. The CPU time since the last
# interrupt counts for the stack that it meets, that of other threads for theirs; so waiting costs nothing, as in Go's
# profiles. (A thread that looks at the stacks meets those that wait: they are the ones that let it run.) One profile at
# a time; each takes MOST seconds at most. Format: github.com/google/pprof, proto/profile.proto.


PROFILE: Final = "/debug/pprof/profile"
HERTZ: Final = 100
MOST: Final = 60.0
DEFAULT: Final = 30.0
MOST_STACKS: Final = 20_000
DEPTH: Final = 128

Stack = tuple[tuple[str, str, int], ...]
"""(function, file, line of the function) of each frame, innermost first."""


async def profile(query: Mapping[str, list[str]]) -> Response:
    """Profile for ?seconds= and return the result. 400 for a wrong number, 500 while another profile runs."""
    try:
        seconds = float((query.get("seconds") or [str(DEFAULT)])[0])
    except ValueError:
        seconds = 0.0
    if not 0 < seconds <= MOST:
        return Response(400, [TEXT], f"seconds must be a number above 0, at most {MOST:g}\n".encode())
    if (
        signal.getsignal(signal.SIGPROF) is not signal.SIG_DFL
        or threading.current_thread() is not threading.main_thread()
    ):
        return Response(500, [TEXT], b"Could not enable CPU profiling: cpu profiling already in use\n")
    sampler = _Sampler()
    with sampler.running():
        await trio.sleep(seconds)
    stacks = sampler.stacks
    if query.get("debug", ["0"])[0] not in ("", "0"):
        return Response(200, [TEXT], _text(stacks))
    body = await trio.to_thread.run_sync(_pprof, stacks, seconds)
    headers = [
        ("content-type", "application/octet-stream"),
        ("content-disposition", 'attachment; filename="profile"'),
        ("x-content-type-options", "nosniff"),
    ]
    return Response(200, headers, body)


class _Sampler:
    """``stacks``: the nanoseconds of CPU of each stack."""

    def __init__(self) -> None:
        self.stacks: Counter[Stack] = Counter()
        self._used = 0
        self._others: dict[int, int] = {}

    @contextmanager
    def running(self) -> Iterator[None]:
        """Look at the stacks within the block. Only in the main thread."""
        self._used, self._others = time.thread_time_ns(), thread_times()
        signal.signal(signal.SIGPROF, self._look)
        signal.setitimer(signal.ITIMER_PROF, 1 / HERTZ, 1 / HERTZ)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
            signal.signal(signal.SIGPROF, signal.SIG_DFL)

    def _look(self, _: int, frame: FrameType | None) -> None:
        now = time.thread_time_ns()
        self._count(frame, now - self._used)
        others = thread_times()
        for ident, running in sys._current_frames().items():
            if ident in others:
                self._count(running, others[ident] - self._others.get(ident, 0))
        self._used, self._others = now, others

    def _count(self, frame: FrameType | None, spent: int) -> None:
        if spent <= 0:
            return
        stack: list[tuple[str, str, int]] = []
        while frame is not None and len(stack) < DEPTH:
            code = frame.f_code
            stack.append((code.co_qualname, code.co_filename, code.co_firstlineno))
            frame = frame.f_back
        key = tuple(stack)
        if key in self.stacks or len(self.stacks) < MOST_STACKS:
            self.stacks[key] += spent


def thread_times() -> dict[int, int]:
    """Return the nanoseconds of CPU of each thread but this one; none where /proc does not tell."""
    times: dict[int, int] = {}
    for thread in threading.enumerate():
        if thread is threading.current_thread() or thread.ident is None or thread.native_id is None:
            continue
        with suppress(OSError, ValueError, IndexError):
            text = Path(f"/proc/self/task/{thread.native_id}/schedstat").read_text()
            times[thread.ident] = int(text.split()[0])
    return times


def _text(stacks: Counter[Stack]) -> bytes:
    lines = [
        ";".join(f"{name} ({Path(file).name}:{line})" for name, file, line in reversed(stack)) + f" {count // 1000}"
        for stack, count in stacks.most_common()
    ]
    return ("\n".join(lines) + "\n").encode()


# profile.proto


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value) if value else b""


def _bytes(field: int, value: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(value)) + value


def _packed(field: int, values: list[int]) -> bytes:
    return _bytes(field, b"".join(map(_varint, values)))


class _Strings(dict[str, int]):
    def __missing__(self, text: str) -> int:
        self[text] = number = len(self)
        return number


def _pprof(stacks: Counter[Stack], seconds: float) -> bytes:
    """Return the profile, compressed. Each frame is one location with one function."""
    strings = _Strings({"": 0})
    period = round(1e9 / HERTZ)
    types = [
        _number(1, strings[kind]) + _number(2, strings[unit])
        for kind, unit in (("samples", "count"), ("cpu", "nanoseconds"))
    ]
    frames: dict[tuple[str, str, int], int] = {}
    parts = [_bytes(1, one) for one in types]
    for stack, count in stacks.items():
        ids = [frames.setdefault(frame, len(frames) + 1) for frame in stack]
        parts.append(_bytes(2, _packed(1, ids) + _packed(2, [max(1, count // period), count])))
    for (name, file, line), number in frames.items():
        place = _number(1, number) + _number(2, line)
        parts.append(_bytes(4, _number(1, number) + _bytes(4, place)))
        function = _number(1, number) + _number(2, strings[name]) + _number(3, strings[name])
        parts.append(_bytes(5, function + _number(4, strings[file]) + _number(5, line)))
    parts += [_bytes(6, text.encode()) for text in strings]
    parts.append(_number(9, time.time_ns() - round(seconds * 1e9)) + _number(10, round(seconds * 1e9)))
    parts.append(_bytes(11, types[1]) + _number(12, period))
    return gzip.compress(b"".join(parts), mtime=0)


# -- slis --------------------------------------------------------------------------------------------------------------
#
# /metrics/slis: the results of health checks as metrics (KEP-3466).


_LABELS: Final = ("name", "type")


class Slis(Collector):
    """Reads the results that the health checks have noted. A check that was not asked for since the last request is run
    now, so that the answer is of this moment."""

    def __init__(self, health: Health) -> None:
        self._health = health
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)

    def describe(self) -> Iterator[Metric]:
        yield from ()

    def answer(self) -> Response:
        self._health.run_all()
        return Response(200, [("content-type", CONTENT_TYPE)], text_of(self._registry))

    def collect(self) -> Iterator[Metric]:
        last = GaugeMetricFamily("kubernetes_healthcheck", "The last result of a health check.", labels=_LABELS)
        total = CounterMetricFamily("kubernetes_healthchecks", "Results of health checks.", labels=(*_LABELS, "status"))
        for (name, kind), results in sorted(self._health.results.items()):
            last.add_metric((name, kind), 1.0 if results.healthy else 0.0)
            for outcome, count in (("success", results.successes), ("error", results.failures)):
                if count:
                    total.add_metric((name, kind, outcome), count)
        yield from (last, total)


# -- ephemeral ---------------------------------------------------------------------------------------------------------
#
# /ephemeral/mark and /ephemeral/reset of a server for tests: a test begins with the state that was marked.
#
# POST marks the present state, or brings all objects back to the marked one (eventlog/reset.py). The answer has the
# revision of the mark. Users with the right to these paths can change everything; the role cluster-admin has it.


MARK: Final = "/ephemeral/mark"
RESET: Final = "/ephemeral/reset"


async def answer_ephemeral(reset: Reset, request: Request, context: Context) -> Response | None:
    """Answer a path of this module; None for any other path. StatusError, LogError."""
    if request.path not in (MARK, RESET) or request.method != "POST":
        return None
    if request.path == MARK:
        return _json({"revision": await reset.mark()})
    done = await reset.reset(author_of(request, context))
    if done is None:
        raise status.bad_request(f"there is no state to return to yet: POST {MARK} first")
    return _json({"revision": done.mark, "deleted": done.deleted, "restored": done.restored})


def _json(content: dict[str, int]) -> Response:
    return Response(200, [("content-type", "application/json")], orjson.dumps(content))
