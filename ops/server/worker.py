"""A worker process of `kubechronicle serve --workers N`: one replica, started and controlled by the parent process.

    python -m kubechronicle.ops.server.worker DESCRIPTOR    # of a socket to the parent (workers.py), which starts it

worker_messages.py describes the messages. SIGTERM drains the worker. When the socket closes, the parent has ended and
its database with it: the worker stops at once.
"""

from __future__ import annotations

import gc
import socket
import sys
from contextlib import suppress
from dataclasses import replace
from functools import partial

import trio

from kubechronicle.eventlog.restarts import TaskFailures, keep_running, plain
from kubechronicle.ops import klog
from kubechronicle.ops.exit_codes import OK
from kubechronicle.ops.free_memory import use_one_arena
from kubechronicle.ops.pki import Pki
from kubechronicle.ops.postgres.cluster import socket_url
from kubechronicle.ops.reporting import REPORTED_ERRORS, report_error
from kubechronicle.ops.server import service_account_keys
from kubechronicle.ops.server.inputs import check_inputs
from kubechronicle.ops.server.preparation import make_plan
from kubechronicle.ops.server.replica import run_server
from kubechronicle.ops.server.shutdown import Shutdown
from kubechronicle.ops.server.worker_messages import (
    BEAT,
    INTERVAL,
    LEAD,
    READY,
    RETIRE,
    SERVING,
    STATES,
    StartMessage,
    WorkerStates,
    receive_start,
)


def main(arguments: list[str]) -> int:
    gc.disable()  # until it serves (replica.py)
    use_one_arena()
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
    states, to_parent = WorkerStates(), trio.socket.from_stdlib_socket(parent)
    failures = TaskFailures()
    async with trio.open_nursery() as signals:
        await shutdown.start(signals, failures)
        following = plain(partial(_follow, to_parent, shutdown, leading, states, signals))
        signals.start_soon(partial(keep_running, "parent", following, failures, returns=True))
        signals.start_soon(keep_running, "heartbeat", plain(partial(_beat, to_parent)), failures)
        with shutdown.scope:
            inputs = check_inputs(settings, message.addresses)
            pki = Pki(settings.data_dir)
            issuer = await service_account_keys.make_issuer(settings, pki.directory)
            plan = make_plan(settings, inputs, pki, issuer)
            listen = replace(plan.listen, listeners=message.listeners, siblings=message.siblings)
            plan = replace(plan, listen=listen, leading=leading, worker=message.number, workers=states)
            plan = replace(plan, shared_logs=message.logs)
            url = settings.database_url or socket_url(settings.data_dir / "postgres")
            serving, ready = (partial(parent.send, word + b"\n") for word in (SERVING, READY))
            await run_server(plan, url, shutdown, ready, report_serving=serving, failures=failures)
        signals.cancel_scope.cancel()


async def _beat(parent: trio.socket.SocketType) -> None:
    """Tell the parent that the event loop runs. `_follow` notices that the parent has ended."""
    while True:
        with suppress(OSError):
            await parent.send(BEAT + b"\n")
        await trio.sleep(INTERVAL)


async def _follow(
    parent: trio.socket.SocketType,
    shutdown: Shutdown,
    leading: trio.Event,
    states: WorkerStates,
    nursery: trio.Nursery,
) -> None:
    """Follow the parent's words, and stop when it has ended."""
    received = b""
    while True:
        try:
            data = await parent.recv(4096)
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
            elif line.startswith(STATES):
                states.follow(line)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
