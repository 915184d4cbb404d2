"""The process that fast servers are forks of: it imports all modules of a server once, which takes most of a start.

    python -P template.py DESCRIPTOR                  forks for the process that has the other end, and ends with it
    python -P template.py --listen NAME --linger SECONDS
                                                   forks for all processes of this user that connect to the abstract
                                                   socket NAME, and ends after so many seconds without a fork

A request is one message over a SOCK_SEQPACKET socket: JSON with ``arguments`` (of the command, the program first),
``environment``, ``directory`` and, to be removed at the end, ``remove``; and the descriptors of standard input, output
and error, and of a socket for the outcome. Two messages come over that: the fork's process id, then its wait status
(wait(2)).

A watcher is the parent of each fork, and waits for its end. So a process that was killed is gone at once, whatever its
starter does, and a fork whose starter was killed is stopped. The template has one thread, so a fork is a whole process.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import pkgutil
import select
import shutil
import signal
import socket
import sys
from collections.abc import Iterator
from typing import Any, Final

from kubechronicle.ops.ephemeral.forks import peer_user
from kubechronicle.ops.errors import OperatorError

MOST: Final = 1 << 18
"""Bytes of a request at most; a message of this kind of socket cannot be longer."""
DESCRIPTORS: Final = 4
NOT_OF_A_SERVER: Final = (
    "kubechronicle.ops.bench",
    "kubechronicle.ops.development",
    "kubechronicle.ops.client",
    "kubechronicle.ops.testing",
)
LOOK: Final = 5.0  # seconds between looks for ended watchers
REQUEST_TIMEOUT: Final = 5.0  # seconds from a connection to its request
STOPPING: Final = 40.0  # seconds to drain a server whose starter has gone; more than its own limit


def import_all() -> None:
    """Import every module that a server may import, so that no list of them has to be kept."""
    package = importlib.import_module("kubechronicle")
    for module in pkgutil.walk_packages(package.__path__, "kubechronicle."):
        if not module.name.startswith(NOT_OF_A_SERVER) and not module.name.endswith(("__main__", "template")):
            with contextlib.suppress(ImportError, OperatorError):  # of a package that only an extra installs
                importlib.import_module(module.name)
    gc.collect()
    gc.freeze()  # no search in a fork copies the pages of these objects


Message = tuple[bytes, list[int]]


def of_one_starter(requests: socket.socket) -> Iterator[Message]:
    """Yield the requests of the process that has the other end, until it ends."""
    while True:
        while not select.select([requests], [], [], LOOK)[0]:
            _reap(set())
        message, descriptors, _, _ = socket.recv_fds(requests, MOST, DESCRIPTORS)
        if not message:
            return
        yield message, descriptors


def of_this_user(listener: socket.socket, linger: float, watchers: set[int]) -> Iterator[Message]:
    """Yield the requests of all processes of this user, until there was no fork for ``linger`` seconds."""
    idle = 0.0
    while watchers or idle < linger:
        if not select.select([listener], [], [], LOOK)[0]:
            idle = 0.0 if watchers else idle + LOOK
            _reap(watchers)
            continue
        idle = 0.0
        connection, _ = listener.accept()
        with connection, contextlib.suppress(OSError):
            connection.settimeout(REQUEST_TIMEOUT)
            if peer_user(connection) == os.getuid():
                message, descriptors, _, _ = socket.recv_fds(connection, MOST, DESCRIPTORS)
                if len(descriptors) == DESCRIPTORS:
                    yield message, descriptors


def fork_at(requests: Iterator[Message], inherited: socket.socket, watchers: set[int]) -> dict[str, Any]:
    """Fork at each request. Return in each fork, with its request; exit after the last one."""
    for message, descriptors in requests:
        request = dict(json.loads(message))
        watcher = os.fork()
        if watcher == 0:
            inherited.close()
            outcome = socket.socket(fileno=descriptors[3])
            if _is_fork(outcome, request.get("remove", "")):
                outcome.close()
                _take_streams(descriptors[:3])
                return request
        watchers.add(watcher)
        _reap(watchers)
        for each in descriptors:
            os.close(each)
    sys.exit()


def _reap(watchers: set[int]) -> None:
    with contextlib.suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG)[0]) != 0:
            watchers.discard(ended)


def _is_fork(outcome: socket.socket, remove: str) -> bool:
    """Fork, and return True in the fork; this process tells its outcome, and ends."""
    pid = os.fork()
    if pid == 0:
        return True
    for descriptor in (0, 1, 2):
        os.close(descriptor)  # the fork's readers wait for the end of its output
    try:
        outcome.send(str(pid).encode())
        _wait(pid, outcome)
        status = os.waitpid(pid, 0)[1]
        if remove:
            shutil.rmtree(remove, ignore_errors=True)
        outcome.send(str(status).encode())
    finally:
        os._exit(0)


def _wait(pid: int, outcome: socket.socket) -> None:
    """Wait for the end of the fork. Stop it when its starter has gone."""
    ended, starter = os.pidfd_open(pid), outcome.fileno()
    if starter in select.select([ended, starter], [], [])[0]:  # nothing is sent here, so it is the end
        for number in (signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
            if select.select([ended], [], [], STOPPING)[0]:
                break


def _take_streams(descriptors: list[int]) -> None:
    for number, descriptor in enumerate(descriptors):
        os.dup2(descriptor, number)
        os.close(descriptor)


def wait_for_request(arguments: list[str]) -> dict[str, Any]:
    """Return in each fork, with its request."""
    watchers: set[int] = set()
    if arguments[0] != "--listen":
        starter = socket.socket(fileno=int(arguments[0]))
        import_all()
        return fork_at(of_one_starter(starter), starter, watchers)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        listener.bind("\0" + arguments[1])
    except OSError:  # another one was faster
        sys.exit()
    listener.listen()  # before the imports, so that starters find it
    import_all()
    return fork_at(of_this_user(listener, float(arguments[3]), watchers), listener, watchers)


if __name__ == "__main__":
    request = wait_for_request(sys.argv[1:])
    os.setsid()  # keep a Ctrl-C for the starter from the server
    os.chdir(request["directory"])
    os.environ.clear()
    os.environ.update(request["environment"])
    sys.argv = request["arguments"]
    from kubechronicle.ops.cli import main

    sys.exit(main())
