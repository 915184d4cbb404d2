"""One of the processes of `kubechronicle serve --workers N`: a replica that is told what to be by its parent.

    python -m kubechronicle.ops.server.worker DESCRIPTOR        (of a socket to the parent, workers.py; nobody else starts it)

The parent's first message are orders (orders.py); then lines: ``lead`` (run the control loops), ``retire`` (end, as
another process has taken this one's place). The answer, once, is ``ready``. SIGTERM drains as ever. When the
parent is gone, which is how it looks when it is killed, so is its database: the worker stops at once.
"""

from __future__ import annotations

import gc
import socket
import sys
from dataclasses import replace

import trio

from kubechronicle.actors.errors import SupervisorGaveUp
from kubechronicle.eventlog.errors import LogError
from kubechronicle.ops import cli
from kubechronicle.ops import logging as klog
from kubechronicle.ops.pki import Pki
from kubechronicle.ops.postgres.cluster import socket_url
from kubechronicle.ops.server import service_account_keys
from kubechronicle.ops.server.orders import LEAD, READY, RETIRE, Orders, receive
from kubechronicle.ops.server.plan import check_inputs, make_plan
from kubechronicle.ops.server.replica import run_server
from kubechronicle.ops.server.stopping import Stop


def main(arguments: list[str]) -> int:
    gc.disable()  # until it serves (replica.py)
    with socket.socket(fileno=int(arguments[0])) as parent:
        try:
            orders = receive(parent)
            klog.set_up(verbosity=orders.settings.v)
            trio.run(work, orders, parent)
            return cli.OK
        except (*cli.EXPECTED, SupervisorGaveUp, LogError, BaseExceptionGroup) as error:
            return cli.told(error)


async def work(orders: Orders, parent: socket.socket) -> None:
    """Run until told to stop. Raises what `serve` raises."""
    settings, stop, leading = orders.settings, Stop(orders.settings), trio.Event()
    async with trio.open_nursery() as signals:
        await signals.start(stop.wait_for_signals)
        signals.start_soon(_obey, trio.socket.from_stdlib_socket(parent), stop, leading, signals)
        with stop.scope:
            inputs = check_inputs(settings, orders.place)
            pki = Pki(settings.data_dir)
            issuer = await trio.to_thread.run_sync(service_account_keys.issuer_of, settings, pki.directory)
            plan = make_plan(settings, inputs, pki, issuer)
            listen = replace(plan.listen, listeners=orders.listeners, siblings=orders.siblings)
            plan = replace(plan, listen=listen, leading=leading, worker=orders.number)
            url = settings.database_url or socket_url(settings.data_dir / "postgres")
            await run_server(plan, url, stop, lambda: parent.send(READY + b"\n"))
        signals.cancel_scope.cancel()


async def _obey(parent: trio.socket.SocketType, stop: Stop, leading: trio.Event, nursery: trio.Nursery) -> None:
    received = b""
    while True:
        try:
            data = await parent.recv(64)
        except OSError:
            data = b""
        if not data:
            stop.scope.cancel()
            return
        *lines, received = (received + data).split(b"\n")
        for line in lines:
            if line == LEAD:
                leading.set()
            elif line == RETIRE:
                nursery.start_soon(stop.hand_over)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
