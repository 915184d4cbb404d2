"""The webhook token authenticator: a server outside is asked whose a bearer token is, by a TokenReview
(plugin/pkg/authenticator/token/webhook of k8s.io/apiserver).

It decides at once from what is remembered, or raises NeedsExternalAnswer. Answers are remembered for ``ttl`` seconds.
Requests with the same token share one question. With 0, and where there was no answer or an error in it, what came
of a question counts for the requests that waited for it and no other: the next one asks again.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from kubechronicle.actors.external_answers import NeedsExternalAnswer, recall_answer, remember_answer
from kubechronicle.http.authentication.interfaces import Identified
from kubechronicle.http.authentication.token_cache import Answer as Known
from kubechronicle.http.authentication.token_cache import NoAnswer, TokenCache
from kubechronicle.http.authentication.user import Rejected, User
from kubechronicle.http.outgoing import reviews
from kubechronicle.http.outgoing.backoff import BACKOFF, Backoff, ask_patiently
from kubechronicle.http.outgoing.client import Answer, AskError, Client, Outgoing
from kubechronicle.http.outgoing.rate_limited_log import RateLimitedLog
from kubechronicle.http.outgoing.remote_server import RemoteServer

log = logging.getLogger(__name__)

KIND: Final = "TokenReview"
GROUP: Final = "authentication.k8s.io"
VERSIONS: Final = ("v1", "v1beta1")
TTL: Final = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenWebhook:
    """Who is asked, and how. ``ttl`` in seconds."""

    peer: RemoteServer
    version: str = "v1"
    ttl: float = TTL

    def authenticator(self, outgoing: Outgoing, audiences: Sequence[str]) -> WebhookTokens:
        """``audiences`` of this server."""
        return WebhookTokens(outgoing.client(self.peer), version=self.version, audiences=audiences, ttl=self.ttl)


class WebhookTokens:
    """``audiences``: what a token is for that the webhook says no audiences of (those of this server); ``version`` of
    the review that is posted; ``clock`` in seconds."""

    def __init__(
        self,
        client: Client,
        *,
        version: str = "v1",
        audiences: Sequence[str] = (),
        ttl: float = TTL,
        backoff: Backoff = BACKOFF,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.cache = TokenCache(success=ttl, failure=ttl, clock=clock)
        self._client = client
        self._api_version = f"{GROUP}/{version}"
        self._audiences = tuple(audiences)
        self._backoff = backoff
        self._complaints = RateLimitedLog(log, "Failed to make webhook authenticator request")

    def user_of(self, token: str, audiences: Sequence[str]) -> Identified | None:
        """As of TokenAuthenticator."""
        key = self.cache.key(token, audiences)
        settled = recall_answer((self, key))
        if isinstance(settled, _Settled):
            answer = settled.answer
        else:
            known = self.cache.look(key)
            if known is None:
                raise _Question(self, key, token, tuple(audiences))
            answer = known[0]
        if isinstance(answer, Rejected):
            raise Rejected(answer.why)
        return answer

    async def ask(self, token: str, audiences: Sequence[str]) -> Known:
        """What the webhook says of it: Identified, None for nobody's, NoAnswer for an error."""
        spec: dict[str, Any] = {"token": token, **({"audiences": list(audiences)} if audiences else {})}
        body = reviews.review(KIND, self._api_version, spec, {"user": {}})
        try:
            return await ask_patiently(
                self._client, body, lambda answer: self._read(answer, audiences), backoff=self._backoff
            )
        except AskError as error:
            self._complaints.tell(str(error))
            return NoAnswer(str(error))

    def _read(self, answer: Answer, audiences: Sequence[str]) -> Known:
        """AskError."""
        status = reviews.status_of(answer, KIND, self._api_version)
        told = reviews.mapping(status, "user")
        extra = reviews.mapping(told, "extra")
        user = User(
            name=reviews.text(told, "username"),
            uid=reviews.text(told, "uid"),
            groups=reviews.texts(told, "groups"),
            extra={key: reviews.texts(extra, key) for key in extra},
        )
        known, error = reviews.flag(status, "authenticated"), reviews.text(status, "error")
        meant = reviews.texts(status, "audiences") or self._audiences
        both = tuple(audience for audience in audiences if audience in meant)
        if audiences and not both:
            return None
        if not known:
            return NoAnswer(error) if error else None
        if not user.name:
            raise AskError("the answer says that the token is somebody's, and not whose")
        return Identified(user, both)


@dataclass(frozen=True, slots=True)
class _Settled:
    """What came of a question, kept for the request that asked."""

    answer: Known


class _Question(NeedsExternalAnswer):
    def __init__(self, webhook: WebhookTokens, key: bytes, token: str, audiences: tuple[str, ...]) -> None:
        super().__init__("a webhook has to be asked")
        self._webhook, self._key, self._token, self._audiences = webhook, key, token, audiences

    async def resolve(self) -> None:
        async def question() -> Known:
            return await self._webhook.ask(self._token, self._audiences)

        remember_answer((self._webhook, self._key), _Settled(await self._webhook.cache.ask(self._key, question)))
