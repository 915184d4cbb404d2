"""/statusz and /flagz: what runs, for how long, with which flags (KEP-4827, KEP-4828), as text or as an object.

/configz has the flags as JSON for programs, in the form that the other components of Kubernetes have it: an object by
the component's name (k8s.io/component-base/configz). kube-apiserver has no such page.

The text is for people: it has no stable form. Accept asks for the objects Statusz and Flagz of config.k8s.io, as JSON,
YAML or CBOR.
"""

from __future__ import annotations

import platform
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final

import orjson

from kubechronicle.api.codecs import negotiate
from kubechronicle.api.codecs.whole import encode
from kubechronicle.api.features.gates import FeatureGates
from kubechronicle.http.context import Context
from kubechronicle.http.health import TEXT
from kubechronicle.http.messages import Request, Response
from kubechronicle.http.operators.profile import PROFILE, profile
from kubechronicle.http.operators.slis import Slis

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
