"""/healthz, /livez and /readyz: named checks, each path one check, ?verbose and ?exclude (Kubernetes API docs, "API
health endpoints").

A check is a synchronous look at state that others keep; it returns nothing or raises Unhealthy with the reason, which
is told in the server's log and only as "reason withheld" to clients, as kube-apiserver does.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kubechronicle.http.context import Context
from kubechronicle.http.messages import Request, Response

log = logging.getLogger(__name__)

TEXT = ("content-type", "text/plain; charset=utf-8")
HEADERS = [TEXT, ("x-content-type-options", "nosniff")]


class Unhealthy(Exception):
    """A failed check's reason, for the log."""


@dataclass(frozen=True, slots=True)
class Check:
    """``name`` as the path names it; ``live``: also part of /livez (a process that fails it should be restarted)."""

    name: str
    check: Callable[[], None]
    live: bool = True


def ping() -> None:
    """Always well: that it answers is the point."""


class Health:
    """Answers the health paths over a list of checks that may grow while the server starts."""

    def __init__(self, checks: Sequence[Check]) -> None:
        self._checks = [Check("ping", ping), *checks]

    def paths(self) -> list[str]:
        found: list[str] = []
        for endpoint in ("healthz", "livez", "readyz"):
            found.append(f"/{endpoint}")
            found.extend(f"/{endpoint}/{check.name}" for check in self._of(endpoint))
        return found

    def _of(self, endpoint: str) -> list[Check]:
        return self._checks if endpoint == "readyz" else [check for check in self._checks if check.live]

    def answer(self, request: Request, context: Context) -> Response | None:
        """The answer for a health path, None for any other."""
        endpoint, _, name = request.path.strip("/").partition("/")
        if endpoint not in ("healthz", "livez", "readyz"):
            return None
        checks = self._of(endpoint)
        if name:
            return self._answer_one(checks, name)
        excluded = set(context.query.get_all("exclude"))
        lines, failed = [], []
        for check in checks:
            if check.name in excluded:
                lines.append(f"[+]{check.name} excluded: ok")
                continue
            try:
                check.check()
            except Unhealthy as reason:
                failed.append(check.name)
                lines.append(f"[-]{check.name} failed: reason withheld")
                log.warning("%s check %s failed: %s", endpoint, check.name, reason)
            else:
                lines.append(f"[+]{check.name} ok")
        unknown = excluded - {check.name for check in checks}
        if unknown:
            listed = ", ".join(f'"{one}"' for one in sorted(unknown))
            lines.append(f"warn: some health checks cannot be excluded: no matches for {listed}")
        if failed:
            return _text(500, "\n".join([*lines, f"{endpoint} check failed", ""]))
        if "verbose" not in context.query:
            return _text(200, "ok")
        return _text(200, "\n".join([*lines, f"{endpoint} check passed", ""]))

    @staticmethod
    def _answer_one(checks: list[Check], name: str) -> Response:
        for check in checks:
            if check.name == name:
                try:
                    check.check()
                except Unhealthy as reason:
                    return _text(500, f"internal server error: {reason}\n")
                return _text(200, "ok")
        return page_not_found()


def _text(status: int, body: str) -> Response:
    return Response(status, HEADERS, body.encode())


def page_not_found() -> Response:
    """The answer of Go's net/http to a path nobody serves; kube-apiserver gives it outside known API groups."""
    return _text(404, "404 page not found\n")
