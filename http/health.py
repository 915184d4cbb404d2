"""/healthz, /livez and /readyz: named checks, each path one check, ?verbose and ?exclude (Kubernetes API docs, "API
health endpoints").

A check is a synchronous function that reads the state of another part. It returns nothing, or raises Unhealthy with the
reason. The reason goes to the server's log; clients read "reason withheld", as from kube-apiserver.

Beside the checks, /readyz names what fails at present: tasks, and sibling workers (FailingPart). It fails only if the
server cannot serve without them.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from kubechronicle.http.context import Context
from kubechronicle.http.messages import Request, Response

log = logging.getLogger(__name__)

TEXT = ("content-type", "text/plain; charset=utf-8")
ENDPOINTS = ("healthz", "livez", "readyz")
HEADERS = [TEXT, ("x-content-type-options", "nosniff"), ("cache-control", "no-cache, private")]


class Unhealthy(Exception):
    """Raised by a failed check, with the reason for the log."""


@dataclass(frozen=True, slots=True)
class HealthCheck:
    """A named check.

    ``name``: as in the path.
    ``live``: also part of /livez (restart the process if it fails).
    ``healthz``: also part of /healthz; None: if it is part of /livez.
    """

    name: str
    check: Callable[[], None]
    live: bool = True
    healthz: bool | None = None


@dataclass(frozen=True, slots=True)
class FailingPart:
    """A part that fails now. ``name``: as in the list of /readyz?verbose. ``essential``: the server is not ready."""

    name: str
    essential: bool = False


def ping() -> None:
    """Succeed always: an answer proves that the server runs."""


@dataclass(slots=True)
class HealthResults:
    """The results of one check at one endpoint so far."""

    healthy: bool = False
    successes: int = 0
    failures: int = 0


class Health:
    """Answers the health paths. ``results``: by (check, endpoint)."""

    def __init__(
        self,
        checks: Sequence[HealthCheck],
        live_from: float = 0.0,
        troubles: Callable[[], Iterable[FailingPart]] = tuple,
    ) -> None:
        """``live_from``: the time (monotonic) until which a failed check does not fail /livez.

        ``troubles``: what fails now; its part of the server has logged it.
        """
        self._troubles = troubles
        self._checks = [HealthCheck("ping", ping), *checks]
        self._live_from = live_from
        self.results: dict[tuple[str, str], HealthResults] = {}

    def run_all(self) -> None:
        """Run each check of each endpoint, and note its result."""
        for endpoint in ENDPOINTS:
            for check in self._of(endpoint):
                with contextlib.suppress(Unhealthy):
                    self._run(check, endpoint)

    def _run(self, check: HealthCheck, endpoint: str) -> None:
        """Run a check, and note its result. Raises Unhealthy."""
        results = self.results.setdefault((check.name, endpoint), HealthResults())
        try:
            check.check()
        except Unhealthy as reason:
            if endpoint == "livez" and time.monotonic() < self._live_from:
                return
            if results.healthy or not results.failures:  # once, however often it is asked
                log.warning("%s check %s failed: %s", endpoint, check.name, reason)
            results.healthy = False
            results.failures += 1
            raise
        results.healthy = True
        results.successes += 1

    def problem(self) -> str:
        """Return the first reason for which /readyz would fail, "" if it would pass. Nothing is noted or logged."""
        for check in self._of("readyz"):
            try:
                check.check()
            except Unhealthy as reason:
                return f"{check.name}: {reason}"
        return next((f"{trouble.name} has failed" for trouble in self._troubles() if trouble.essential), "")

    def paths(self) -> list[str]:
        paths: list[str] = []
        for endpoint in ENDPOINTS:
            paths.append(f"/{endpoint}")
            paths.extend(f"/{endpoint}/{check.name}" for check in self._of(endpoint))
        return paths

    def _of(self, endpoint: str) -> list[HealthCheck]:
        if endpoint == "readyz":
            return self._checks
        if endpoint == "livez":
            return [check for check in self._checks if check.live]
        return [check for check in self._checks if (check.live if check.healthz is None else check.healthz)]

    def answer(self, request: Request, context: Context) -> Response | None:
        """Answer a health path; None for any other path."""
        endpoint, slash, name = request.path[1:].partition("/")
        if endpoint not in ENDPOINTS:
            return None
        if slash and not name:
            return page_not_found()
        checks = self._of(endpoint)
        if name:
            return self._answer_one(checks, name, endpoint)
        excluded = set(context.query.get_all("exclude"))
        lines, failed = [], []
        for check in checks:
            if check.name in excluded:
                lines.append(f"[+]{check.name} excluded: ok")
                continue
            try:
                self._run(check, endpoint)
            except Unhealthy:
                failed.append(check.name)
                lines.append(f"[-]{check.name} failed: reason withheld")
            else:
                lines.append(f"[+]{check.name} ok")
        for trouble in self._troubles() if endpoint == "readyz" else ():
            if trouble.essential and trouble.name not in excluded:
                failed.append(trouble.name)
                lines.append(f"[-]{trouble.name} failed: reason withheld")
            else:
                lines.append(f"[!]{trouble.name} failed: reason withheld; not needed to be ready")
            excluded.discard(trouble.name)
        unknown = excluded - {check.name for check in checks}
        if unknown:
            listed = ", ".join(f'"{one}"' for one in sorted(unknown))
            lines.append(f"warn: some health checks cannot be excluded: no matches for {listed}")
        if failed:
            return _text(500, "\n".join([*lines, f"{endpoint} check failed", ""]))
        if "verbose" not in context.query:
            return _text(200, "ok")
        return _text(200, "\n".join([*lines, f"{endpoint} check passed", ""]))

    def _answer_one(self, checks: list[HealthCheck], name: str, endpoint: str) -> Response:
        for check in checks:
            if check.name == name:
                try:
                    self._run(check, endpoint)
                except Unhealthy as reason:
                    return _text(500, f"internal server error: {reason}\n")
                return _text(200, "ok")
        return page_not_found()


def _text(status: int, body: str) -> Response:
    return Response(status, HEADERS, body.encode())


def page_not_found() -> Response:
    """Return Go's net/http answer to unknown paths; kube-apiserver gives it outside of known API groups."""
    return _text(404, "404 page not found\n")
