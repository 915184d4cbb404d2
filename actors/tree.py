"""The supervision tree, on one page.

    server (rest_for_one)
    ├── tail               applies the log to the views; the only writer of the views
    ├── appender           groups transactions into batches; the only caller of append
    ├── other logs         a tail and an appender for each database of --database-url-overrides
    ├── resource actors    one per resource type, started on demand, each restarted alone
    ├── outside            connections to webhooks and identity providers, and the providers' refresh tasks
    ├── loops              bootstrap first, then the control loops chosen with --controllers
    └── http               the listener; last to start, first to stop

A crashed child is restarted together with everything below it. Too many restarts stop the server, with the reason
logged: an orchestrator should replace a server that cannot keep its log or its listener running.
"""

from __future__ import annotations

from collections.abc import Sequence

from kubechronicle.actors.resource_actors import ResourceActors
from kubechronicle.actors.supervisor import ChildSpec, Supervisor
from kubechronicle.eventlog.appender import Appender
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
) -> Supervisor:
    """``others``: the name, the tail and the appender of each other log."""
    other_logs = [
        child
        for name, its_tail, its_appender in others
        for child in (
            ChildSpec(name=f"tail of {name}", run=its_tail.run),
            ChildSpec(name=f"appender of {name}", run=its_appender.run),
        )
    ]
    return Supervisor(
        "server",
        [
            ChildSpec(name="tail", run=tail.run),
            ChildSpec(name="appender", run=appender.run),
            *other_logs,
            ChildSpec(name="resource actors", run=actors.run),
            ChildSpec(name="outside", run=Supervisor("outside", outside).run),
            ChildSpec(name="loops", run=Supervisor("loops", loops).run),
            http,
        ],
    )
