"""/ephemeral/mark and /ephemeral/reset of a server for tests: a test begins with the state that was marked.

POST marks the present state, or brings all objects back to the marked one (eventlog/reset.py). The answer has the
revision of the mark. Users with the right to these paths can change everything; the role cluster-admin has it.
"""

from __future__ import annotations

from typing import Final

import orjson

from kubechronicle.api.errors import status
from kubechronicle.eventlog.reset import Reset
from kubechronicle.http.context import Context, author_of
from kubechronicle.http.messages import Request, Response

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
