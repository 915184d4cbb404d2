"""Trees of owners and dependents, over objects of a period."""

from __future__ import annotations

from kubechronicle.actors.history.tree import TreeNode, involved_in, owners_in, tree_of, with_owner


def node(uid: str, *owners: str) -> TreeNode:
    return TreeNode(uid, "pods", "shop", uid, owners)


def test_owners_and_dependents_have_levels() -> None:
    nodes = {each.uid: each for each in (node("d"), node("r", "d"), node("s", "d"), node("p", "r"), node("x"))}
    assert tree_of(nodes, ["d"]) == {"d": 0, "r": 1, "s": 1, "p": 2}
    assert tree_of(nodes, ["r"]) == {"r": 0, "d": -1, "p": 1}
    assert tree_of(nodes, []) == {}


def test_objects_that_own_each_other_come_to_an_end() -> None:
    nodes = {each.uid: each for each in (node("a", "b"), node("b", "a"), node("c", "c"), node("d", "gone"))}
    assert tree_of(nodes, ["a"]) == {"a": 0, "b": -1}
    assert tree_of(nodes, ["c"]) == {"c": 0}
    assert tree_of(nodes, ["d"]) == {"d": 0}


def test_an_object_keeps_the_owners_that_it_had() -> None:
    nodes: dict[str, TreeNode] = {}
    for owners in (("a",), (), ("b", "a")):
        with_owner(nodes, node("p", *owners))
    assert nodes["p"].owners == ("a", "b")


def test_uids_are_read_from_json() -> None:
    assert owners_in(b'{"metadata":{"name":"x","ownerReferences":[{"uid":"1","kind":"K"},{"uid":"2"}]}}') == ("1", "2")
    assert owners_in(b'{"metadata":{"ownerReferences":null},"spec":[1]}') == owners_in(b"{}") == ()
    assert involved_in(b'{"involvedObject":{"uid":"1"}}') == "1"
    assert involved_in(b'{"metadata":{}}') == ""
