"""A worker process of `kubechronicle serve --workers N`: one replica, started and controlled by the parent process.

    python -m kubechronicle.ops.server.worker DESCRIPTOR    # of a socket to the parent (workers.py), which starts it

worker_messages.py describes the messages. SIGTERM drains the worker. When the socket closes, the parent has ended and
its database with it: the worker stops at once.
"""

from __future__ import annotations

import gc
import socket
import sys
from dataclasses import replace

import trio

from kubechronicle.ops import klog
from kubechronicle.ops.exit_codes import OK
from kubechronicle.ops.pki import Pki
from kubechronicle.ops.postgres.cluster import socket_url
from kubechronicle.ops.reporting import REPORTED_ERRORS, report_error
from kubechronicle.ops.server import service_account_keys
from kubechronicle.ops.server.preparation import check_inputs, make_plan
from kubechronicle.ops.server.replica import run_server
from kubechronicle.ops.server.shutdown import Shutdown
from kubechronicle.ops.server.worker_messages import LEAD, READY, RETIRE, StartMessage, receive_start


def main(arguments: list[str]) -> int:
    gc.disable()  # until it serves (replica.py)
    with socket.socket(fileno=int(arguments[0])) as parent:
        try:
            message = receive_start(parent)
            klog.set_up(verbosity=message.settings.v)
            trio.run(work, message, parent)
            return OK
        except REPORTED_ERRORS as error:
            return report_error(error)


async def work(message: StartMessage, parent: socket.socket) -> None:
    """Run until stopped. Raise the same errors as `serve`."""
    settings, shutdown, leading = message.settings, Shutdown(message.settings), trio.Event()
    async with trio.open_nursery() as signals:
        await signals.start(shutdown.wait_for_signals)
        signals.start_soon(_follow, trio.socket.from_stdlib_socket(parent), shutdown, leading, signals)
        with shutdown.scope:
            inputs = check_inputs(settings, message.addresses)
            pki = Pki(settings.data_dir)
            issuer = await service_account_keys.make_issuer(settings, pki.directory)
            plan = make_plan(settings, inputs, pki, issuer)
            listen = replace(plan.listen, listeners=message.listeners, siblings=message.siblings)
            plan = replace(plan, listen=listen, leading=leading, worker=message.number)
            url = settings.database_url or socket_url(settings.data_dir / "postgres")
            await run_server(plan, url, shutdown, lambda: parent.send(READY + b"\n"))
        signals.cancel_scope.cancel()


async def _follow(
    parent: trio.socket.SocketType, shutdown: Shutdown, leading: trio.Event, nursery: trio.Nursery
) -> None:
    """Follow the parent's words, and stop when it has ended."""
    received = b""
    while True:
        try:
            data = await parent.recv(64)
        except OSError:
            data = b""
        if not data:
            shutdown.scope.cancel()
            return
        *lines, received = (received + data).split(b"\n")
        for line in lines:
            if line == LEAD:
                leading.set()
            elif line == RETIRE:
                nursery.start_soon(shutdown.hand_over)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
