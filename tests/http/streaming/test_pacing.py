"""The limit of a session's bytes a second."""

from __future__ import annotations

import trio
from trio.testing import MockClock, memory_stream_pair

from kubechronicle.http.streaming.copying import copy_both
from kubechronicle.http.streaming.pacing import paced


async def test_each_direction_has_its_own_limit(autojump_clock: MockClock) -> None:
    client, ours = memory_stream_pair()
    theirs, backend = memory_stream_pair()
    draining = trio.Event()
    begun = trio.current_time()
    taken: dict[str, float] = {}

    async def send_and_receive(name: str, stream: trio.abc.Stream) -> None:
        async with trio.open_nursery() as both:
            both.start_soon(stream.send_all, bytes(5000))
            received = 0
            while received < 5000:
                received += len(await stream.receive_some())
        taken[name] = trio.current_time() - begun

    async with trio.open_nursery() as nursery:
        nursery.start_soon(lambda: copy_both(ours, paced(theirs, 1000), draining=draining))
        async with trio.open_nursery() as sides:
            sides.start_soon(send_and_receive, "client", client)
            sides.start_soon(send_and_receive, "backend", backend)
        draining.set()
    # The last slice passes at once: 5000 bytes take 4.9 s at 1000 bytes a second.
    assert all(4.8 < seconds < 5.2 for seconds in taken.values()), taken


async def test_no_limit_leaves_the_stream_alone() -> None:
    stream, _ = memory_stream_pair()
    assert paced(stream, 0) is stream
