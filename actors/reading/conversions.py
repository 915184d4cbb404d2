"""Conversions: custom objects in other versions, as their definition's webhook converts them.

A conversion depends on the object's contents and the definition, so its result is kept for a while: watchers, lists and
the attempts of one write share it. Rules are functions without ``await`` (``recall``): they raise NeedsExternalAnswer
for an unknown result, and decide again when it is there. Answers are converted before they are encoded (``convert``).
"""

from __future__ import annotations

import hashlib
import uuid
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

import orjson
import trio

from kubechronicle.actors.external_answers import NeedsExternalAnswer, recall_answer, remember_answer
from kubechronicle.api.custom.conversion_reviews import converted, encoded, failed, review
from kubechronicle.api.custom.version import CustomVersion
from kubechronicle.api.errors.status import StatusError
from kubechronicle.api.values.caches import kept_in_order
from kubechronicle.api.values.objects import Object
from kubechronicle.eventlog.request_parts import CONVERSION, timed

TIMEOUT: Final = 30.0
"""Seconds for one review (apiserver/pkg/util/webhook: the timeout of a conversion's client)."""
MOST_OBJECTS: Final = 500
MOST_BYTES: Final = 2 * 1024 * 1024
"""Objects, and bytes of objects, in one review. A webhook must answer within the timeout."""
KEPT_BYTES: Final = 32 * 1024 * 1024
"""Bytes of results that are kept."""
KEPT_SECONDS: Final = 60.0
"""Seconds for which a result is kept: after that, a new release of the webhook decides."""

Digest: TypeAlias = bytes


class WebhookError(Exception):
    """A webhook gave no usable answer. The text is the reason, for the client.

    ``code``: the status of its HTTP answer; 503 if there was none, or none that can be used.
    """

    def __init__(self, why: str, *, code: int = 503) -> None:
        super().__init__(why)
        self.code = code


class AskWebhook(Protocol):
    """Post a body to a webhook's clientConfig, and return the decoded answer. Raises WebhookError.

    ``timeout``: seconds. ``deadline``: the trio time at which it ends, if the caller knows that already.
    """

    async def __call__(
        self, config: Mapping[str, Any], body: bytes, *, timeout: float, deadline: float | None = None
    ) -> Any: ...


class Conversions:
    """Converts objects, and keeps the results. ``ask``: sends the reviews."""

    def __init__(self, ask: AskWebhook) -> None:
        self._ask = ask
        self._kept: OrderedDict[Digest, tuple[bytes, float]] = kept_in_order("conversions")  # with the time of its end
        self._bytes = 0

    async def convert(self, custom: CustomVersion, objects: Sequence[Object], api_version: str) -> list[Object]:
        """Return the objects in another version, in order. StatusError 500."""
        found: dict[int, Object] = {}
        missing: list[_Missing] = []
        for index, obj in enumerate(objects):
            if obj["apiVersion"] == api_version:
                found[index] = obj
                continue
            body = _contents(obj)
            key = _digest(custom, body, api_version)
            held = self._held(key)
            if held is None:
                missing.append(_Missing(index, key, obj, len(body)))
            else:
                found[index] = _with_revision(held, obj)
        for part in _parts(missing):
            for each, result in zip(part, await self._review(custom, part, api_version), strict=True):
                found[each.place] = result
        return [found[index] for index in range(len(objects))]

    def recall(self, custom: CustomVersion, obj: Object, api_version: str) -> Object:
        """Return the object in another version if the result is known.

        Raises NeedsExternalAnswer otherwise, and the StatusError of a conversion that failed for this decision.
        """
        body = _contents(obj)
        key = _digest(custom, body, api_version)
        held = self._held(key)
        if held is not None:
            return _with_revision(held, obj)
        error = recall_answer(key)
        if isinstance(error, StatusError):
            raise error
        raise _NeedsConversion(self, custom, _Missing(0, key, obj, len(body)), api_version)

    async def resolve(self, custom: CustomVersion, missing: _Missing, api_version: str) -> None:
        """Ask for one conversion, and remember the result for this decision if it failed."""
        try:
            await self._review(custom, [missing], api_version)
        except StatusError as error:
            remember_answer(missing.key, error)

    async def _review(self, custom: CustomVersion, part: Sequence[_Missing], api_version: str) -> list[Object]:
        objects = [each.object for each in part]
        webhook = custom.conversion.get("webhook") or {}
        versions = webhook.get("conversionReviewVersions") or ()
        asked = review(objects, api_version, uid=str(uuid.uuid4()), versions=versions)
        shown = {
            "custom-resource-definition": f"{custom.plural}.{custom.group}",
            "desired-api-version": api_version,
            "object-count": str(len(objects)),
        }
        try:
            with timed(CONVERSION, "Call conversion webhook", lambda: shown):
                answer = await self._ask(webhook.get("clientConfig") or {}, encoded(asked), timeout=TIMEOUT)
        except WebhookError as error:
            raise failed(objects[0], f"failed: {error}") from None
        results = converted(answer, objects, api_version, asked=asked)
        for each, result in zip(part, results, strict=True):
            self._keep(each.key, orjson.dumps(_without_revision(result)))
        return results

    # -- kept results -------------------------------------------------------------------------------------------------

    def _held(self, key: Digest) -> Object | None:
        kept = self._kept.get(key)
        if kept is None or kept[1] < trio.current_time():
            return None
        found: Object = orjson.loads(kept[0])
        return found

    def _keep(self, key: Digest, body: bytes) -> None:
        if key in self._kept:
            self._bytes -= len(self._kept.pop(key)[0])
        self._bytes += len(body)
        self._kept[key] = body, trio.current_time() + KEPT_SECONDS
        while self._bytes > KEPT_BYTES:
            self._bytes -= len(self._kept.popitem(last=False)[1][0])


def without_webhooks() -> Conversions:
    """Return conversions of a server that asks no webhook: each one fails."""

    async def ask(config: Mapping[str, Any], body: bytes, *, timeout: float, deadline: float | None = None) -> Any:
        raise WebhookError("this server sends no requests to others")

    return Conversions(ask)


class _Missing(NamedTuple):
    """An object to convert. ``place``: its index among the objects. ``size``: its bytes."""

    place: int
    key: Digest
    object: Object
    size: int


class _NeedsConversion(NeedsExternalAnswer):
    def __init__(self, conversions: Conversions, custom: CustomVersion, missing: _Missing, api_version: str) -> None:
        super().__init__(f"the conversion of {custom.plural}.{custom.group} to {api_version}")
        self._conversions = conversions
        self._custom = custom
        self._missing = missing
        self._api_version = api_version

    async def resolve(self) -> None:
        await self._conversions.resolve(self._custom, self._missing, self._api_version)


def _contents(obj: Object) -> bytes:
    """Return the bytes on which a conversion depends; equal objects have the same ones."""
    return orjson.dumps(_without_revision(obj), option=orjson.OPT_SORT_KEYS)


def _without_revision(obj: Object) -> Object:
    meta = obj.get("metadata")
    if not isinstance(meta, dict) or "resourceVersion" not in meta:
        return obj
    return {**obj, "metadata": {name: value for name, value in meta.items() if name != "resourceVersion"}}


def _digest(custom: CustomVersion, contents: bytes, api_version: str) -> Digest:
    head = f"{custom.uid} {custom.generation} {api_version} ".encode()
    return hashlib.blake2b(head + contents, digest_size=20).digest()


def _with_revision(result: Object, obj: Object) -> Object:
    """Return a kept result with the resourceVersion of the object that it stands for."""
    meta = obj.get("metadata")
    revision = meta.get("resourceVersion") if isinstance(meta, dict) else None
    if revision is None:
        return result
    return {**result, "metadata": {"resourceVersion": revision, **result["metadata"]}}


def _parts(missing: Sequence[_Missing]) -> Iterator[list[_Missing]]:
    """Yield parts that fit into one review each."""
    part: list[_Missing] = []
    size = 0
    for each in missing:
        if part and (len(part) >= MOST_OBJECTS or size + each.size > MOST_BYTES):
            yield part
            part, size = [], 0
        part.append(each)
        size += each.size
    if part:
        yield part
