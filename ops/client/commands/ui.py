"""`ui`: open the server's web page in a browser, with the credentials of the kubeconfig (see loopback.py)."""

from __future__ import annotations

import argparse
import webbrowser
from typing import Final

import orjson

from kubechronicle.api.history.web_page import PREFIX
from kubechronicle.api.values.objects import Object
from kubechronicle.ops import terminal
from kubechronicle.ops.client import sources
from kubechronicle.ops.client.client import Client
from kubechronicle.ops.client.explaining import Explainer, explanation_document
from kubechronicle.ops.client.loopback import Loopback
from kubechronicle.ops.client.output import Screen
from kubechronicle.ops.client.restoring.page import PageRestores
from kubechronicle.ops.client.session import Session, connect
from kubechronicle.ops.client.transport import Transport
from kubechronicle.ops.errors import OperatorError

EXAMPLES: Final = """\
  kubectl chronicle ui
  kubectl chronicle ui --context production --no-browser
"""

REASONS: Final = {
    401: "the server did not authenticate you; check the user's credentials in the kubeconfig",
    403: f"permission denied: get on the path {PREFIX}* (a rule with nonResourceURLs of a ClusterRole)",
    404: f"the server has no {PREFIX}; it must run with --enable-ui",
}


def add_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--port", metavar="PORT", type=int, default=0, help="of 127.0.0.1 (default: a free one)")
    parser.add_argument("--no-browser", action="store_true", help="print the URL without opening it")
    parser.add_argument("--read-only", action="store_true", help="offer no restores on the page")
    sources.add_flags(parser)


def run(arguments: argparse.Namespace) -> int:
    """Serve the page until the command is interrupted."""
    client = connect(sources.target_of(arguments))
    check(client.transport)
    restores = None if arguments.read_only else PageRestores(client).answer
    try:
        explanations = PageExplanations(client).answer
        loopback = Loopback(client.transport, port=arguments.port, restores=restores, explanations=explanations)
    except (OSError, OverflowError) as error:
        raise OperatorError(f"--port: cannot listen on port {arguments.port}: {error}") from None
    with loopback:
        out = terminal.stdout()
        out.line(loopback.url)
        out.line("Anyone on this machine with this URL acts as you. Ctrl-C ends it.")
        out.flush()
        if not arguments.no_browser:
            webbrowser.open(loopback.url)
        try:
            loopback.serve_forever()
        except KeyboardInterrupt:
            out.line()
    return 0


def check(transport: Transport) -> None:
    """Raise OperatorError unless the server has the page and the user may read it."""
    status = transport.send("GET", PREFIX, {"Accept": "text/html"}, None).status
    if status != 200:
        raise OperatorError(REASONS.get(status, f"the server answers {PREFIX} with HTTP status {status}"))


# -- page --------------------------------------------------------------------------------------------------------------
#
# Explanations that the web page asks for: those of `kubectl chronicle why`, with the rights of its user.
#
# request   {"words": ["deployments.apps/web"], "namespace": "shop", "limit": 8}
# answer    {"object", "symptoms", "events", "suspects", "notSearched"}, as `why -o json` prints


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
