"""Tags in the server: the target of a new tag, and the revision of a tag that stands for a moment."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from typing import TypeAlias

from kubechronicle.actors.admission.chain import CREATE, AdmissionState, Attributes
from kubechronicle.actors.companion_changes import CompanionChange
from kubechronicle.actors.external_answers import NeedsExternalAnswer, recall_answer, remember_answer
from kubechronicle.actors.reading.reads import Reads
from kubechronicle.api.errors import status
from kubechronicle.api.errors.field_errors import invalid_value
from kubechronicle.api.history.moments import Asked, parse_moment, written
from kubechronicle.api.history.tags import RESOURCE
from kubechronicle.eventlog.entries import Entry
from kubechronicle.eventlog.errors import BeforeHistory, FutureMoment, FutureRevision, LogError
from kubechronicle.eventlog.records import Moment

MomentOf: TypeAlias = "Callable[[Asked | None], Awaitable[Moment]]"
"""Return the newest revision at a moment; None: now. BeforeHistory, FutureMoment, FutureRevision, LogError."""


def moments_of(reads: Reads) -> MomentOf:
    async def moment_of(asked: Asked | None) -> Moment:
        return await reads.past.moment(await reads.wait_consistent() if asked is None else asked)

    return moment_of


class TagTargets:
    """A StorageHook that finds the revision and the time of a new tag. Only the log knows them."""

    resources = frozenset({RESOURCE})

    def __init__(self, moment_of: MomentOf) -> None:
        self._moment_of = moment_of

    def begin_write(self, attributes: Attributes, state: AdmissionState) -> None:
        obj = attributes.object
        if attributes.operation != CREATE or obj is None:
            return
        spec = obj.setdefault("spec", {})
        field = "revision" if spec.get("revision") else "moment"
        text = str(spec.get(field) or "")
        found = recall_answer((TagTargets, field, text))
        if found is None:
            raise _UnknownTarget(self._moment_of, field, text)
        if isinstance(found, LogError):
            raise found
        if not isinstance(found, Moment):
            cause = invalid_value(f"spec.{field}", text, found)
            raise status.invalid(attributes.rt.group, attributes.rt.kind, attributes.name, [cause])
        spec["revision"], spec["time"] = str(found.revision), written(found.time)

    def release(self, entry: Entry, state: AdmissionState) -> Sequence[CompanionChange]:
        return ()


class _UnknownTarget(NeedsExternalAnswer):
    def __init__(self, moment_of: MomentOf, field: str, text: str) -> None:
        super().__init__()
        self._moment_of, self._field, self._text = moment_of, field, text

    async def resolve(self) -> None:
        remember_answer((TagTargets, self._field, self._text), await self._answer())

    async def _answer(self) -> object:
        """Return the moment, the reason why there is none, or an error of the log."""
        try:
            asked = parse_moment(self._text, now=datetime.now(UTC)) if self._text else None
            if self._field == "revision" and not isinstance(asked, int):
                return "must be a revision, such as 12345"
            return await self._moment_of(asked)
        except ValueError as error:
            return str(error)
        except BeforeHistory as error:
            return f"lies before the retained history: {error}"
        except (FutureMoment, FutureRevision) as error:
            return f"lies in the future: {error}"
        except LogError as error:
            return error
