"""/healthz, /livez and /readyz: named checks, each path one check, ?verbose and ?exclude (Kubernetes API docs, "API
health endpoints").

A check is a synchronous function that reads the state of another part. It returns nothing, or raises Unhealthy with the
reason. The reason goes to the server's log; clients read "reason withheld", as from kube-apiserver.
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
    """Raised by a failed check, with the reason for the log."""


@dataclass(frozen=True, slots=True)
class Check:
    """A named check.

    ``name``: as in the path.
    ``live``: also part of /livez (restart the process if it fails).
    ``healthz``: also part of /healthz; None: if it is part of /livez.
    """

    name: str
    check: Callable[[], None]
    live: bool = True
    healthz: bool | None = None


def ping() -> None:
    """Succeed always: an answer proves that the server runs."""


class Health:
    """Answers the health paths."""

    def __init__(self, checks: Sequence[Check]) -> None:
        self._checks = [Check("ping", ping), *checks]

    def paths(self) -> list[str]:
        paths: list[str] = []
        for endpoint in ("healthz", "livez", "readyz"):
            paths.append(f"/{endpoint}")
            paths.extend(f"/{endpoint}/{check.name}" for check in self._of(endpoint))
        return paths

    def _of(self, endpoint: str) -> list[Check]:
        if endpoint == "readyz":
            return self._checks
        if endpoint == "livez":
            return [check for check in self._checks if check.live]
        return [check for check in self._checks if (check.live if check.healthz is None else check.healthz)]

    def answer(self, request: Request, context: Context) -> Response | None:
        """Answer a health path; None for any other path."""
        endpoint, slash, name = request.path[1:].partition("/")
        if endpoint not in ("healthz", "livez", "readyz"):
            return None
        if slash and not name:
            return page_not_found()
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
    """Return Go's net/http answer to unknown paths; kube-apiserver gives it outside of known API groups."""
    return _text(404, "404 page not found\n")
