"""Fair queues: what runs, waits and is rejected; shares of flows under load; nothing is lost."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator

import pytest

from kubechronicle.api.flow_control.limits import LevelSpec, Limits
from kubechronicle.api.flow_control.pace import Flow, Pace, Ticket, hand_of
from kubechronicle.api.flow_control.queues import FULL, NO_SEATS, RUNS, WAITS, Level


def spec(queues: int = 8, hand_size: int = 2, queue_length: int = 5, *, exempt: bool = False) -> LevelSpec:
    return LevelSpec(
        name="level", uid="", exempt=exempt, shares=1, lendable=0, borrowing=None,
        queues=queues, hand_size=hand_size, queue_length=queue_length,
    )  # fmt: skip


def level(seats: int, made: LevelSpec | None = None) -> Level:
    one = Level(made or spec(), 0.0, Pace())
    one.limit(Limits(seats, seats, seats, 4), seats, 0.0)
    return one


def flow(of: Level, name: str, hash_value: int = 7) -> Flow:
    return of.flow(name, name, hash_value)


class Running(list[Ticket]):
    """The tickets that run, in the order in which they began."""

    def start(self, at: Level, ticket: Ticket, now: float) -> str:
        ticket.wake = lambda: self.append(ticket)
        decision = at.start(ticket, now)
        if decision is RUNS and ticket not in self:
            self.append(ticket)
        return decision


def test_requests_run_wait_and_are_rejected() -> None:
    one, running = level(2, spec(queues=1, hand_size=1, queue_length=3)), Running()
    a = flow(one, "a")
    assert [running.start(one, Ticket(a, n), 0.0) for n in range(6)] == [RUNS, RUNS, WAITS, WAITS, WAITS, FULL]
    assert (one.executing, one.waiting, one.seats_used, one.seats_waiting) == (2, 3, 2, 3)
    one.finish(running[0], 0.1)
    assert [ticket.about for ticket in running] == [0, 1, 2]
    for ticket in (running[1], running[2]):
        one.finish(ticket, 0.2)
    for ticket in running[3:]:
        one.finish(ticket, 0.3)
    assert one.idle
    assert not one.seats_used
    assert [ticket.about for ticket in running] == [0, 1, 2, 3, 4]


def test_without_queues_requests_are_rejected_at_once() -> None:
    one, running = level(1, spec(queues=0)), Running()
    a = flow(one, "a")
    assert [running.start(one, Ticket(a, n), 0.0) for n in range(2)] == [RUNS, NO_SEATS]
    one.finish(running[0], 1.0)
    assert running.start(one, Ticket(a, 2), 1.0) is RUNS


def test_exempt_requests_run() -> None:
    one, running = level(0, spec(queues=0, exempt=True)), Running()
    a = flow(one, "a")
    assert {running.start(one, Ticket(a, n, 5), 0.0) for n in range(9)} == {RUNS}
    assert one.seats_used == 45
    assert one.high == 45


def test_a_wide_request_is_not_overtaken_for_ever() -> None:
    one, running = level(4, spec(queues=2, hand_size=1)), Running()
    narrow, wide = flow(one, "narrow", 0), flow(one, "wide", 1)
    for n in range(4):
        running.start(one, Ticket(narrow, n), 0.0)
    assert running.start(one, Ticket(wide, "wide", 4), 0.0) is WAITS
    for n in range(4, 40):  # one ends, another one comes
        running.start(one, Ticket(narrow, n), 0.003 * n)
        one.finish(running[n - 4], 0.003 * n)
        if running[-1].about == "wide":
            break
    assert running[-1].about == "wide"
    assert len(running) < 15
    assert one.seats_used == 4


def test_wide_requests_leave_seats_to_narrow_ones() -> None:
    one, running = level(16, spec(queues=2, hand_size=1, queue_length=50)), Running()
    wide, narrow = flow(one, "wide", 0), flow(one, "narrow", 1)
    for n in range(8):
        running.start(one, Ticket(wide, n, 4), 0.0)
    assert one.executing == 3
    assert [running.start(one, Ticket(narrow, n), 0.0) for n in range(4)] == [RUNS] * 4
    assert running.start(one, Ticket(narrow, 4), 0.0) is WAITS
    one.finish(running[0], 0.1)  # the narrow one is next
    assert (one.executing, one.seats_used) == (7, 13)


def test_a_request_may_overtake_at_once() -> None:
    one = level(16, spec(queues=2, hand_size=1, queue_length=50))
    wide, narrow = flow(one, "wide", 0), flow(one, "narrow", 1)
    for n in range(8):
        one.start(Ticket(wide, n, 4), 0.0)
    ticket = Ticket(narrow, 0)  # nobody has said yet how to wake it
    assert one.start(ticket, 0.0) is RUNS


def test_a_request_wider_than_its_level_runs_alone() -> None:
    one, running = level(2), Running()
    a = flow(one, "a")
    assert running.start(one, Ticket(a, 0, 10), 0.0) is RUNS
    assert running.start(one, Ticket(a, 1), 0.0) is WAITS
    one.finish(running[0], 0.1)
    assert len(running) == 2


def test_seats_linger_after_a_write_with_watchers() -> None:
    one, running = level(2), Running()
    a = flow(one, "a")
    running.start(one, Ticket(a, 0, 1, final_seats=2, extra=0.005), 0.0)
    assert running.start(one, Ticket(a, 1), 0.0) is WAITS
    one.finish(running[0], 0.010)
    assert len(running) == 1
    assert one.next_free() == pytest.approx(0.015)
    one.release(0.0149)
    assert len(running) == 1
    one.release(0.015)
    assert len(running) == 2
    assert one.next_free() is None


def test_giving_up_leaves_nothing_behind() -> None:
    one, running = level(1), Running()
    a = flow(one, "a")
    running.start(one, Ticket(a, 0), 0.0)
    waiting = Ticket(a, 1, 1)
    running.start(one, waiting, 0.0)
    one.give_up(waiting, 5.0)
    one.finish(running[0], 6.0)
    assert (one.idle, one.seats_used, one.seats_waiting, one.timed_out, one.active_queues) == (True, 0, 0, 1, 0)
    one.give_up(waiting, 7.0) if waiting.running else None
    assert not waiting.running


def simulate(
    one: Level, demands: dict[str, int], seconds: float, *, seats: dict[str, int] | None = None
) -> Counter[str]:
    """Keep a number of requests of each flow begun, each of 10 ms; return how many of each flow ended."""
    draw, ended, running = random.Random(5), Counter[str](), Running()
    flows = {name: flow(one, name, draw.getrandbits(64)) for name in demands}
    now, ends = 0.0, dict[Ticket, float]()

    def refill() -> Iterator[Ticket]:
        for name, wanted in demands.items():
            counts = flows[name].counts
            while counts.waiting + counts.executing < wanted:
                ticket = Ticket(flows[name], name, (seats or {}).get(name, 1))
                if running.start(one, ticket, now) is FULL:
                    break
                yield ticket

    while now < seconds:
        list(refill())
        for ticket in running:
            ends.setdefault(ticket, now + 0.01)
        now = min(ends[ticket] for ticket in running)
        for ticket in [ticket for ticket in running if ends[ticket] <= now]:
            running.remove(ticket)
            del ends[ticket]
            ended[ticket.about] += 1
            one.finish(ticket, now)
    return ended


def test_a_noisy_flow_leaves_a_quiet_one_its_share() -> None:
    ended = simulate(level(10, spec(queues=64, hand_size=6, queue_length=50)), {"noisy": 200, "quiet": 2}, 20)
    # 10 seats make 1,000 requests a second. A request of the quiet flow waits for 10 ms, one of the noisy flow for 200.
    assert ended["quiet"] > 0.95 * 20 * 2 / 0.02
    assert ended["quiet"] + ended["noisy"] > 0.95 * 20 * 1000


def test_equal_flows_get_equal_parts() -> None:
    one = level(8, spec(queues=128, hand_size=1, queue_length=50))
    ended = simulate(one, {f"flow-{n}": 20 for n in range(4)}, 20)
    assert max(ended.values()) < 1.2 * min(ended.values())


def test_a_flow_of_wide_requests_gets_as_many_seats_as_one_of_narrow_ones() -> None:
    one = level(12, spec(queues=128, hand_size=1, queue_length=50))
    ended = simulate(one, {"wide": 20, "narrow": 40}, 20, seats={"wide": 4})
    assert 4 * ended["wide"] == pytest.approx(ended["narrow"], rel=0.25)


def test_counts_add_up_in_random_histories() -> None:
    draw = random.Random(3)
    for _ in range(60):
        one, running, waiting = (
            level(draw.randint(1, 6), spec(queues=draw.choice([0, 1, 4]), hand_size=1)),
            Running(),
            [],
        )
        flows, now = [flow(one, str(n), draw.getrandbits(64)) for n in range(3)], 0.0
        for _ in range(300):
            now += draw.random() / 100
            match draw.randint(0, 5):
                case 0 | 1:
                    final = draw.choice([0, 0, 2])
                    ticket = Ticket(draw.choice(flows), None, draw.randint(1, 3), final, final and 0.02)
                    if running.start(one, ticket, now) is WAITS:
                        waiting.append(ticket)
                case 2 if running:
                    one.finish(running.pop(draw.randrange(len(running))), now)
                case 3 if waiting:
                    ticket = waiting.pop(draw.randrange(len(waiting)))
                    one.give_up(ticket, now)
                case 4:
                    one.limit(one.limits, draw.randint(1, 8), now)
                case 5:
                    one.release(now)
            waiting = [ticket for ticket in waiting if not ticket.running]
            assert (one.waiting, one.seats_waiting) == (len(waiting), sum(ticket.width for ticket in waiting))
            assert one.executing == len(running)
            assert one.active_queues == sum(bool(queue.waiting) for queue in one.queues)
        for ticket in waiting:
            one.give_up(ticket, now)
        while running:
            one.finish(running.pop(), now)
        one.release(now + 1)
        assert (one.idle, one.seats_used, one.seats_waiting) == (True, 0, 0)
        assert all(counts.executing_seats == counts.waiting_seats == 0 for counts in one.flows.values())


def test_hands_are_different_queues_evenly_dealt() -> None:
    draw, dealt = random.Random(1), Counter[int]()
    for _ in range(4000):
        hand = hand_of(draw.getrandbits(60), 16, 4)
        assert len(set(hand)) == 4
        assert all(0 <= queue < 16 for queue in hand)
        dealt.update(hand)
    assert min(dealt.values()) > 850
    assert max(dealt.values()) < 1150
