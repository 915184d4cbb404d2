"""`try-policy -f FILE`: tell which writes of the past an admission policy would have refused or changed.

Calls of webhooks that are tried: reviews to one address, over a connection that is kept.
"""

from __future__ import annotations

import argparse
import ssl
from typing import Any, Final
from urllib.parse import urlsplit

import orjson

from kubechronicle.api.admission.reviews import CallFailed
from kubechronicle.api.values.objects import Object
from kubechronicle.ops.client import kubeconfig, output, policy_files
from kubechronicle.ops.client.connection import PORTS, Address, Disconnected, HttpError, ServerConnection
from kubechronicle.ops.client.output import format_time
from kubechronicle.ops.client.policy_files import PolicyFile
from kubechronicle.ops.client.session import Session
from kubechronicle.ops.client.trial import Trial, prepare
from kubechronicle.ops.client.trial_changes import find_bounds, registry_with_custom_types
from kubechronicle.ops.client.trial_report import Report
from kubechronicle.ops.errors import OperatorError

MAX_ANSWER: Final = 16 * 1024 * 1024
"""Bytes of an answer that are read."""


class WebhookCalls:
    """Sends reviews to ``url``. ``authority``: a file with the certificates to trust; "": those of the system."""

    def __init__(self, url: str, authority: str = "") -> None:
        self._url, parts = url, urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise OperatorError(f"--webhook-url {url}: must be a URL such as https://127.0.0.1:8443/validate")
        self._path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        self._address = Address(parts.scheme, parts.hostname, parts.port or PORTS[parts.scheme])
        self._connection: ServerConnection | None = None
        try:
            self._context = ssl.create_default_context(cafile=authority or None)
        except OSError as error:
            raise OperatorError(f"--webhook-ca {authority}: {error.strerror or error}") from None
        self._context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # as the server has it (remote_server.py)

    def ask(self, name: str, body: bytes, timeout: float) -> Any:
        """Return the decoded answer to a review (JSON). CallFailed. OperatorError: nobody is at the address."""
        try:
            status, answer = self._exchange(body, timeout)
        except (Disconnected, ConnectionResetError, BrokenPipeError):  # it was idle for too long
            try:
                status, answer = self._exchange(body, timeout)
            except (OSError, HttpError) as error:
                raise _failed(error) from None
        except (OSError, HttpError) as error:
            raise _failed(error) from None
        if status != 200:
            raise CallFailed(f"failed to call webhook: the server answered with status {status}")
        try:
            return orjson.loads(answer)
        except orjson.JSONDecodeError:
            raise CallFailed("failed to call webhook: the answer is not JSON") from None

    def _exchange(self, body: bytes, timeout: float) -> tuple[int, bytes]:
        connection, self._connection = self._connection or self._connect(timeout), None
        connection.timeout = timeout
        try:
            response = connection.request("POST", self._path, (("Content-Type", "application/json"),), body)
            answer = response.body(MAX_ANSWER)
            if len(answer) > MAX_ANSWER:
                raise CallFailed("failed to call webhook: the answer is too large")
            if response.kept:
                self._connection = connection
            return response.status, answer
        finally:
            if self._connection is None:
                connection.close()

    def _connect(self, timeout: float) -> ServerConnection:
        try:
            return ServerConnection(self._address, context=self._context, name=self._address.host, timeout=timeout)
        except OSError as error:
            raise OperatorError(f"--webhook-url {self._url}: {error}; is the webhook running there?") from None


def _failed(error: Exception) -> CallFailed:
    why = "no answer within the time of the webhook" if isinstance(error, TimeoutError) else str(error)
    return CallFailed(f"failed to call webhook: {why}")


EXAMPLES: Final = """\
  kubectl chronicle try-policy -f policy.yaml                    against the writes of the last 30 days
  kubectl chronicle try-policy -f policy.yaml --since 2h -n shop
  kubectl chronicle try-policy -f policy.yaml -f binding.yaml --since 2026-11-01 --until 2026-11-08
  kubectl chronicle try-policy -f webhooks.yaml --webhook-url https://127.0.0.1:8443/validate --webhook-ca ca.crt
  kubectl chronicle try-policy -f policy.yaml -o json            all users, namespaces and messages
  kubectl chronicle try-policy --audited --since 7d              the policies of the cluster that only audit so far
"""
SINCE: Final = "30d"
EXAMPLES_KEPT: Final = 5
INTERRUPTED: Final = 130
"""The exit code after Ctrl-C, as of a shell."""


def add_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-f",
        "--filename",
        metavar="FILE",
        action="append",
        default=[],
        help="policies, bindings, webhook configurations, parameter objects; - for standard input; may be repeated",
    )
    parser.add_argument(
        "--audited",
        action="store_true",
        help="instead of a file: the policies of the cluster whose bindings only audit, as if they denied",
    )
    parser.add_argument(
        "--since", metavar="MOMENT", default=SINCE, help=f"only writes after it: 2h, a time, a revision ({SINCE})"
    )
    parser.add_argument("--until", metavar="MOMENT", default="", help="only writes up to it")
    parser.add_argument(
        "--examples", metavar="N", type=int, default=EXAMPLES_KEPT, help=f"examples per policy ({EXAMPLES_KEPT})"
    )
    parser.add_argument("--webhook-url", metavar="URL", default="", help="ask the webhooks of the file at this address")
    parser.add_argument("--webhook-ca", metavar="FILE", default="", help="the certificate authority of that address")
    parser.add_argument("--compress", action="store_true", help="compress the changes on their way, for slow networks")
    output.add_flags(parser)
    kubeconfig.add_flags(parser)


def run(arguments: argparse.Namespace) -> int:
    """Return exit code 0 if no write would have been refused, 1 if some would, 130 after Ctrl-C. OperatorError."""
    if arguments.examples < 0:
        raise OperatorError("--examples must not be negative")
    if bool(arguments.filename) is arguments.audited:
        raise OperatorError("give either -f FILE or --audited")
    file = PolicyFile() if arguments.audited else policy_files.read(arguments.filename)
    session = Session.open(arguments)
    client = session.client.replaced(compressed=arguments.compress)
    if arguments.audited:
        file = policy_files.audited(client)
    bounds = find_bounds(client, arguments.since, arguments.until)
    if file.webhooks and not arguments.webhook_url:
        raise OperatorError("webhooks are asked at --webhook-url, not at their clientConfig; start them and name it")
    ask = WebhookCalls(arguments.webhook_url, arguments.webhook_ca).ask if file.webhooks else _nobody
    trial = prepare(client, file, registry_with_custom_types(client), bounds, arguments.namespace, ask)
    report = Report(arguments.examples)
    report.expect(map(policy_files.name_of, file.policies))
    report.expect(each.source for each in (*trial.mutating.webhooks, *trial.validating.webhooks))
    finished = trial.run(report)
    _print(session, trial, report, finished=finished)
    if not finished:
        return INTERRUPTED
    return 1 if report.totals["refused"] else 0


def _nobody(name: str, review: bytes, timeout: float) -> Any:
    raise AssertionError("there are no webhooks")


def _print(session: Session, trial: Trial, report: Report, *, finished: bool) -> None:
    arguments, screen, bounds = session.arguments, session.screen, trial.bounds
    notes = list(trial.notes)
    if arguments.audited:
        notes.insert(0, "These policies only audit in the cluster. Their bindings were taken as if they denied.")
    if bounds.begins:
        notes.append(f"The history begins at {format_time(bounds.begins)}, later than --since {arguments.since}.")
    if not finished:
        notes.append("Interrupted: these are the writes judged until then, the oldest ones of the period.")
    if screen.format != "text":
        head: Object = {
            "since": arguments.since,
            "until": arguments.until or "now",
            "revisions": {"after": str(bounds.after), "until": str(bounds.until)},
            "complete": finished,
            "notes": notes,
        }
        screen.document(report.document(head))
        return
    kinds = ", ".join(sorted(each.resource or "all resources" for each in trial.sources)[:4])
    more = f" and {len(trial.sources) - 4} more" if len(trial.sources) > 4 else ""
    place = f" in namespace {trial.namespace}" if trial.namespace else ""
    until = arguments.until or "now"
    report.print(screen, f"of {kinds}{more}{place} since {arguments.since} until {until}")
    if notes:
        screen.line()
    for note in notes:
        screen.line(note)
