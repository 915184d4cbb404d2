"""Recent: values by their keys, forgotten after two generations without use."""

from __future__ import annotations

from kubechronicle.api.values.caches import Recent


def test_values_are_found_until_two_generations_have_passed() -> None:
    recent: Recent[str, str] = Recent(2)
    recent.add("a", "A")
    recent.add("b", "B")
    recent.add("c", "C")  # begins a generation
    assert (recent.get("c"), recent.get("unknown")) == ("C", None)
    recent.add("d", "D")
    recent.add("e", "E")
    assert [recent.get(key) for key in "abcde"] == [None, None, "C", "D", "E"]


def test_a_value_in_use_is_not_forgotten() -> None:
    recent: Recent[int, str] = Recent(2)
    recent.add(-1, "used")
    for number in range(10):
        assert recent.get(-1) == "used"
        recent.add(number, "once")


def test_weights_bound_a_generation() -> None:
    recent: Recent[str, int] = Recent(10)
    recent.add("too heavy", 1, 11)
    recent.add("a", 1, 6)
    recent.add("b", 2, 6)
    recent.add("c", 3, 6)
    assert [recent.get(key) for key in ("too heavy", "a", "b", "c")] == [None, None, 2, 3]
