"""The process that servers of tests are forks of: it imports all modules of a server once, which takes most of a start.

    python template.py DESCRIPTOR

DESCRIPTOR is a SOCK_SEQPACKET socket. Each message is a request: JSON with ``arguments`` (of the command, the program
first), ``environment`` and ``directory``, and the descriptors of standard input, output and error, and of a socket for
the outcome. Two messages come over that: the fork's process id, then its wait status (wait(2)).

A watcher is the parent of each fork, and waits for its end. So a process that was killed is gone at once, whatever its
starter does. The template ends with its starter. It has one thread, so a fork is a whole process.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import pkgutil
import signal
import socket
import sys
from typing import Any, Final

MOST: Final = 1 << 18
"""Bytes of a request at most; a message of this kind of socket cannot be longer."""
DESCRIPTORS: Final = 4
NOT_OF_A_SERVER: Final = ("kubechronicle.ops.bench", "kubechronicle.ops.development", "kubechronicle.ops.client")


def import_all() -> None:
    """Import every module that a server may import, so that no list of them has to be kept."""
    import kubechronicle

    for module in pkgutil.walk_packages(kubechronicle.__path__, "kubechronicle."):
        if not module.name.startswith(NOT_OF_A_SERVER) and not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    gc.collect()
    gc.freeze()  # no search in a fork copies the pages of these objects


def fork_at_requests(requests: socket.socket) -> dict[str, Any]:
    """Fork at each request. Return in each fork, with its request; exit when the starter has ended."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # watchers vanish when they end
    while True:
        message, descriptors, _, _ = socket.recv_fds(requests, MOST, DESCRIPTORS)
        if not message:
            sys.exit()
        if os.fork() == 0:
            requests.close()
            outcome = socket.socket(fileno=descriptors[3])
            if _is_fork(outcome):
                outcome.close()
                _take_streams(descriptors[:3])
                return dict(json.loads(message))
        for each in descriptors:
            os.close(each)


def _is_fork(outcome: socket.socket) -> bool:
    """Fork, and return True in the fork; this process tells its outcome, and ends."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    pid = os.fork()
    if pid == 0:
        return True
    for descriptor in (0, 1, 2):
        os.close(descriptor)  # the fork's readers wait for the end of its output
    try:
        outcome.send(str(pid).encode())
        outcome.send(str(os.waitpid(pid, 0)[1]).encode())
    finally:
        os._exit(0)


def _take_streams(descriptors: list[int]) -> None:
    for number, descriptor in enumerate(descriptors):
        os.dup2(descriptor, number)
        os.close(descriptor)


if __name__ == "__main__":
    import_all()
    request = fork_at_requests(socket.socket(fileno=int(sys.argv[1])))
    os.setsid()  # keep a Ctrl-C for the tests from the server
    os.chdir(request["directory"])
    os.environ.clear()
    os.environ.update(request["environment"])
    sys.argv = request["arguments"]
    from kubechronicle.ops.cli import program

    program()
