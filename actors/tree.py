"""The supervision tree, on one page.

    server
    ├── log (rest_for_one)
    │   ├── tail             applies the log to the views; the only writer of the views
    │   ├── appender         groups transactions into batches; the only caller of append
    │   ├── other logs       a tail and an appender for each database of --database-url-overrides
    │   └── resource actors  one per resource type, started on demand, each restarted alone
    ├── outside (one_for_one)  connections to webhooks and identity providers, and the providers' refresh tasks
    ├── loops (one_for_one)    bootstrap first, then the control loops chosen with --controllers
    └── http                   the listener; last to start, first to stop

A part of the log that crashes is restarted together with the parts below it. Requests and watches outlive that: they
wait, or get the outcome as far as it is known. Each other task is restarted alone. Pauses grow, and the server goes on
without the work of a task that keeps failing: /readyz?verbose names it, and fails if it is a part of the log.

Two things stop the server, with the reason logged: the log or the listener does not start at first, and a log whose
records do not follow each other (LogCorrupt), because views with a gap give wrong answers.
"""

from __future__ import annotations

from collections.abc import Sequence

from kubechronicle.actors.resource_actors import ResourceActors
from kubechronicle.actors.supervisor import ChildSpec, Supervisor, Tasks
from kubechronicle.eventlog.appender import Appender
from kubechronicle.eventlog.errors import LogCorrupt
from kubechronicle.eventlog.restarts import TaskFailures
from kubechronicle.eventlog.tail import Tail


def server_tree(
    *,
    tail: Tail,
    appender: Appender,
    others: Sequence[tuple[str, Tail, Appender]] = (),
    actors: ResourceActors,
    outside: Sequence[ChildSpec],
    loops: Sequence[ChildSpec],
    http: ChildSpec,
    failures: TaskFailures,
) -> Supervisor:
    """``others``: the name, the tail and the appender of each other log."""
    parts = [
        child
        for suffix, its_tail, its_appender in (("", tail, appender), *((f" of {one[0]}", *one[1:]) for one in others))
        for child in (
            ChildSpec(name=f"tail{suffix}", run=its_tail.run, fatal=(LogCorrupt,)),
            ChildSpec(name=f"appender{suffix}", run=its_appender.run, fatal=(LogCorrupt,)),
        )
    ]
    log = Supervisor(
        "log", [*parts, ChildSpec(name="resource actors", run=actors.run)], lasting=True, failures=failures
    )
    return Supervisor(
        "server",
        [
            ChildSpec(name="log", run=log.run),
            ChildSpec(name="outside", run=Tasks(outside, failures).run),
            ChildSpec(name="loops", run=Tasks(loops, failures).run),
            http,
        ],
        lasting=True,
        failures=failures,
    )
