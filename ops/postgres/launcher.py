"""A program that becomes initdb or postgres: it drops privileges, requests a signal at its parent's death, and execs.

    python -I -S launcher.py PARENT_PID UID GID DIRECTORY PROGRAM ARGUMENT…     (UID -1: keep the user)

``{cluster}`` in an argument stands for DIRECTORY. If the new user cannot enter a folder above DIRECTORY (/root, say),
DIRECTORY is opened before privileges are dropped, and named by its descriptor. It belongs to the user, so no
permissions need to be loosened. Postgres works in its directory and uses relative paths after its start.

The signal: when the server is killed, Linux sends SIGINT to this child. That is Postgres' fast shutdown, so kill -9 of
the server leaves no database behind. The signal is requested after the change of user, which clears it, and before
exec, which keeps it.

The program runs without site-packages, as root, and imports nothing of kubechronicle: it must start in milliseconds.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def main(argv: list[str]) -> None:
    parent, uid, gid = (int(argument) for argument in argv[:3])
    directory, arguments = argv[3], argv[4:]
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    os.chdir("/")  # Postgres' programs return to the folder they started in, so the new user must be able to enter it
    if uid >= 0:
        os.setgroups([])
        os.setgid(gid)
        os.setuid(uid)
    os.umask(0o077)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(signal.SIGINT), 0, 0, 0)
        if os.getppid() != parent:  # the parent died before the request
            return
    if not os.access(os.path.join(directory, "."), os.R_OK | os.X_OK) and os.path.isdir("/proc/self/fd"):
        os.set_inheritable(descriptor, True)
        directory = f"/proc/self/fd/{descriptor}"
    arguments = [argument.replace("{cluster}", directory) for argument in arguments]
    os.execv(arguments[0], arguments)


if __name__ == "__main__":
    main(sys.argv[1:])
