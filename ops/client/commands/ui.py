"""`ui`: the web page of the server, opened in a browser with the credentials of the kubeconfig (see loopback.py)."""

from __future__ import annotations

import argparse
import webbrowser
from typing import Final

from kubechronicle.api.history.web_page import PREFIX
from kubechronicle.ops.client import kubeconfig
from kubechronicle.ops.client.loopback import Loopback
from kubechronicle.ops.client.session import CONNECT
from kubechronicle.ops.client.transport import Transport
from kubechronicle.ops.errors import OperatorError

EXAMPLES: Final = """\
  kubectl chronicle ui
  kubectl chronicle ui --context production --no-browser
"""

WHY: Final = {
    401: "the server does not know who you are; see the user's credentials in the kubeconfig",
    403: f"you lack the right get on the path {PREFIX}* (a rule with nonResourceURLs of a ClusterRole)",
    404: f"the server has no {PREFIX}; it must run with --enable-ui",
}


def add_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--port", metavar="PORT", type=int, default=0, help="of 127.0.0.1, instead of a free one")
    parser.add_argument("--no-browser", action="store_true", help="print the URL, and open nothing")
    kubeconfig.add_flags(parser)


def run(given: argparse.Namespace) -> int:
    """Until it is interrupted."""
    transport = CONNECT[-1](kubeconfig.load(given))
    check(transport)
    try:
        loopback = Loopback(transport, port=given.port)
    except (OSError, OverflowError) as error:
        raise OperatorError(f"--port: cannot listen on port {given.port}: {error}") from None
    with loopback:
        print(f"{loopback.url}\nWhoever knows this URL on this machine acts as you; Ctrl-C ends it.", flush=True)
        if not given.no_browser:
            webbrowser.open(loopback.url)
        try:
            loopback.serve_forever()
        except KeyboardInterrupt:
            print()
    return 0


def check(transport: Transport) -> None:
    """That there is a page, and one may see it. OperatorError."""
    status = transport.send("GET", PREFIX, {"Accept": "text/html"}, None).status
    if status != 200:
        raise OperatorError(WHY.get(status, f"the server answers {PREFIX} with HTTP status {status}"))
