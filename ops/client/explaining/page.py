"""Explanations that the web page asks for: those of `kubectl chronicle why`, with the rights of its user.

request   {"words": ["deployments.apps/web"], "namespace": "shop", "limit": 8}
answer    {"object", "symptoms", "events", "suspects", "notSearched"}, as `why -o json` prints
"""

from __future__ import annotations

import argparse
from typing import Final

import orjson

from kubechronicle.api.values.objects import Object
from kubechronicle.ops.client.client import Client
from kubechronicle.ops.client.explaining.documents import explanation_document
from kubechronicle.ops.client.explaining.explainer import Explainer
from kubechronicle.ops.client.output import Screen
from kubechronicle.ops.client.session import Session
from kubechronicle.ops.errors import OperatorError

MOST: Final = 20
"""Changes that one request explains."""


class PageExplanations:
    """Answers the page's questions why an object is as it is."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def answer(self, body: bytes) -> tuple[int, Object]:
        """Return the HTTP status and the JSON of the answer. Blocks while the objects and their changes are read."""
        try:
            asked = orjson.loads(body)
            words, namespace = [str(word) for word in asked["words"]], str(asked["namespace"])
            limit = min(max(int(asked.get("limit", MOST)), 1), MOST)
            client = self._client.replaced(namespace=namespace or self._client.namespace)
            screen = Screen(argparse.Namespace(output="json", color="never"))
            session = Session(argparse.Namespace(words=words, namespace=namespace), client, screen)
            kinds = session.kinds()
            found = Explainer(client, kinds, session.subject(words, kinds), limit=limit).explain()
            return 200, explanation_document(found)
        except (orjson.JSONDecodeError, KeyError, TypeError, ValueError, AttributeError):
            return 400, {"message": "the request is not a question about an object"}
        except OperatorError as error:
            return 400, {"message": str(error)}
