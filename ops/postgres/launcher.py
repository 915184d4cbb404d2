"""A program that turns into initdb or postgres: drops privileges, asks for a signal at its parent's death, execs.

    python -I -S postgres_launcher.py PARENT_PID UID GID DIRECTORY PROGRAM ARGUMENT…     (UID -1: stay who we are)

``{cluster}`` in an argument stands for DIRECTORY. When DIRECTORY lies where the new user may not go (below /root, say),
it is opened before privileges are dropped and named by its descriptor instead: the directory itself belongs to the
user, only the way to it is closed, and nobody's permissions need to be loosened. Postgres works in its directory, so
everything after its start is relative.

The signal: Linux ends a child of a killed process with SIGINT, Postgres' fast shutdown, so that kill -9 of the server
leaves no database behind. It is asked for after the change of user (which clears it) and before exec (which keeps it).

Runs without site-packages, as root, and imports nothing of kubechronicle: it must start in milliseconds.
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
    os.chdir("/")  # Postgres' programs return to where they were started, which the new user must be able to do
    if uid >= 0:
        os.setgroups([])
        os.setgid(gid)
        os.setuid(uid)
    os.umask(0o077)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(signal.SIGINT), 0, 0, 0)
        if os.getppid() != parent:  # it died before it could be asked for
            return
    if not os.access(os.path.join(directory, "."), os.R_OK | os.X_OK) and os.path.isdir("/proc/self/fd"):
        os.set_inheritable(descriptor, True)
        directory = f"/proc/self/fd/{descriptor}"
    arguments = [argument.replace("{cluster}", directory) for argument in arguments]
    os.execv(arguments[0], arguments)


if __name__ == "__main__":
    main(sys.argv[1:])
