"""Values of Secrets in history: masked for everybody, and shown on request (?values=shown), which is recorded.

The record is a recorded read (reads.py) of each Secret, whatever the policy of recorded reads says. It is written
before the answer is sent: if the database does not answer, nothing is shown.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from uuid import UUID, uuid4

from kubechronicle.eventlog.log import ReadLog
from kubechronicle.eventlog.queries.reads import ReadRecord, Recording
from kubechronicle.eventlog.records import Key
from kubechronicle.http.context import MAX_AUDIT_ID, MAX_REQUEST_URI, MAX_USER_AGENT, Context, shown_uri
from kubechronicle.http.messages import Request


class ShownSecrets:
    """Records Secrets whose values are shown. The records of one process belong to one recording without a policy."""

    def __init__(self) -> None:
        self._id: UUID = uuid4()
        self._since = time.time()

    def recorder(
        self, log: ReadLog, request: Request, context: Context, revision: int
    ) -> Callable[[Sequence[Key]], Awaitable[None]]:
        """Return the function that records Secrets for a request. ``revision``: the newest one that is applied."""

        async def record(keys: Sequence[Key]) -> None:
            now = time.time()
            recording = Recording(self._id, "", self._since, now, 0, clean=True, policy={"rules": []})
            await log.record([_read_of(key, request, context, revision) for key in keys], recording)

        return record


def _read_of(key: Key, request: Request, context: Context, revision: int) -> ReadRecord:
    user = context.user
    return ReadRecord(
        at=context.received,
        revision=context.at.revision if context.at is not None else revision,
        resource=key.resource,
        subresource="",
        namespace=key.namespace,
        name=key.name,
        verb=context.info.verb,
        form="object",
        user_name=user.name,
        user_uid=user.uid,
        user_groups=user.groups,
        impersonator=context.impersonator,
        request_uri=shown_uri(request)[:MAX_REQUEST_URI],
        user_agent=request.headers.get("user-agent")[:MAX_USER_AGENT],
        source_address=request.client[0],
        audit_id=context.audit_id[:MAX_AUDIT_ID],
    )
