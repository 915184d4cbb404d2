"""Mutations of valid objects that know the domain: a table of named functions from a place to another value.

A mutation changes the object in place and returns False where it does not apply. All chance comes from the given
Random, so a seed fixes the result.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

from kubechronicle.ops.development.differential import values
from kubechronicle.ops.development.differential.catalogue import Catalogue, Resource
from kubechronicle.ops.development.differential.nodes import Node, is_quantity, make, walk


@dataclass(slots=True)
class Place:
    """Everything that a mutation may look at."""

    rng: Random
    catalogue: Catalogue
    resource: Resource
    document: dict[str, Any]

    def nodes(self, wanted: Callable[[Node], bool] = lambda _: True) -> list[Node]:
        schema = self.catalogue.of(self.resource)
        return [
            node
            for node in walk(self.catalogue, schema, self.document)
            if wanted(node) and node.path not in (("apiVersion",), ("kind",))
        ]

    def pick(self, wanted: Callable[[Node], bool] = lambda _: True) -> Node | None:
        """Choose a node; those of the metadata are rarer than the kind's own."""
        found = self.nodes(wanted)
        own = [node for node in found if node.path[0] != "metadata"]
        if own and self.rng.random() < 0.85:
            found = own
        return self.rng.choice(found) if found else None

    def metadata(self) -> dict[str, Any]:
        metadata = self.document.setdefault("metadata", {})
        return metadata if isinstance(metadata, dict) else {}


Mutation = Callable[[Place], bool]


def replaced(choices: tuple[Any, ...], wanted: Callable[[Node], bool]) -> Mutation:
    """Return the mutation that puts one of the values into a fitting place."""

    def mutate(place: Place) -> bool:
        node = place.pick(wanted)
        if node is None:
            return False
        node.set(copy.deepcopy(place.rng.choice(choices)))
        return True

    return mutate


def anything(_: Node) -> bool:
    return True


def of_type(*types: type) -> Callable[[Node], bool]:
    return lambda node: type(node.value) in types


def named(node: Node) -> bool:
    return isinstance(node.key, str) and node.key.lower().endswith("name") and isinstance(node.value, str)


def quantity(node: Node) -> bool:
    return is_quantity(node.schema)


def either(node: Node) -> bool:
    return node.schema.get("format") == "int-or-string"


def duration(node: Node) -> bool:
    return "Duration" in str(node.schema.get("description", ""))[:40] or (
        isinstance(node.key, str) and node.key.lower().endswith(("duration", "timeout"))
    )


def enumerated(node: Node) -> bool:
    return bool(node.schema.get("enum")) and isinstance(node.value, str)


def change_enum(place: Place) -> bool:
    node = place.pick(enumerated)
    if node is None:
        return False
    value = node.value
    node.set(place.rng.choice([*node.schema["enum"], "", "Unknown", value.lower(), value.upper(), value + " "]))
    return True


def remove(place: Place) -> bool:
    node = place.pick()
    if node is None:
        return False
    node.remove()
    return True


def add_optional(place: Place) -> bool:
    """Add a field that the schema knows and the object does not have."""
    schema = place.catalogue.of(place.resource)
    candidates = [(place.document, schema)] + [(node.value, node.schema) for node in place.nodes(of_type(dict))]
    spots = []
    for value, below in candidates:
        properties = place.catalogue.resolve(below).get("properties", {})
        spots += [(value, key, properties[key]) for key in properties if key not in value]
    own = [spot for spot in spots if spot[0] is not place.document.get("metadata")]
    if not own:
        return False
    # A container first, then a field, so that large schemas do not take all the chances.
    container = place.rng.choice(list({id(spot[0]): spot[0] for spot in own}.values()))
    value, key, below = place.rng.choice([spot for spot in own if spot[0] is container])
    value[key] = make(place.catalogue, place.rng, below, key, 2)
    return True


def make_again(place: Place) -> bool:
    """Replace a value by a generated one of its type."""
    node = place.pick(lambda node: bool(node.schema))
    if node is None:
        return False
    node.set(make(place.catalogue, place.rng, node.schema, str(node.key), 2))
    return True


def add_unknown(place: Place) -> bool:
    node = place.pick(of_type(dict))
    target = node.value if node else place.document
    target[place.rng.choice(["unknown", "spec2", "x-y", "Name", "METADATA"])] = place.rng.choice(
        [1, "a", {}, None, [1]]
    )
    return True


def rename_key(place: Place) -> bool:
    """Spell a field's name in another case: names are case-sensitive since v1.22's strict decoders."""
    node = place.pick(lambda node: isinstance(node.key, str))
    if node is None:
        return False
    value, key = node.value, node.key
    node.remove()
    node.parent[key[:1].upper() + key[1:] if place.rng.random() < 0.5 else key.lower()] = value
    return True


def duplicate_item(place: Place) -> bool:
    node = place.pick(lambda node: isinstance(node.value, list) and bool(node.value))
    if node is None:
        return False
    node.value.append(copy.deepcopy(place.rng.choice(node.value)))
    return True


def almost_duplicate_item(place: Place) -> bool:
    """Append a copy of an item with one field changed, so that only its keys are equal."""
    node = place.pick(lambda node: isinstance(node.value, list) and any(isinstance(v, dict) and v for v in node.value))
    if node is None:
        return False
    item = copy.deepcopy(place.rng.choice([v for v in node.value if isinstance(v, dict) and v]))
    key = place.rng.choice(list(item))
    item[key] = make(
        place.catalogue,
        place.rng,
        place.catalogue.resolve(
            place.catalogue.resolve(node.schema.get("items") or {}).get("properties", {}).get(key, {"type": "string"})
        ),
        key,
        3,
    )
    node.value.append(item)
    return True


def shuffle(place: Place) -> bool:
    node = place.pick(lambda node: isinstance(node.value, list) and len(node.value) > 1)
    if node is None:
        return False
    place.rng.shuffle(node.value)
    return True


def remove_item(place: Place) -> bool:
    node = place.pick(lambda node: isinstance(node.value, list) and bool(node.value))
    if node is None:
        return False
    node.value.pop(place.rng.randrange(len(node.value)))
    return True


def many_items(place: Place) -> bool:
    node = place.pick(lambda node: isinstance(node.value, list) and bool(node.value))
    if node is None or len(json.dumps(node.value)) > 2000:
        return False
    first = node.value[0]
    for number in range(place.rng.choice([10, 20, 40])):
        item = copy.deepcopy(first)
        if isinstance(item, dict) and isinstance(item.get("name"), str):
            item["name"] = f"n{number}"
        node.value.append(item)
    return True


def change_key(place: Place) -> bool:
    node = place.pick(lambda node: isinstance(node.value, dict) and "additionalProperties" in node.schema)
    if node is None:
        return False
    value = node.value.pop(place.rng.choice(list(node.value)), "1") if node.value else "1"
    node.value[place.rng.choice(values.KEYS)] = value
    return True


def swap_values(place: Place) -> bool:
    """Put a string of the object at the place of another one: references that meet or miss."""
    nodes = place.nodes(lambda node: isinstance(node.value, str) and "${" not in node.value)
    if len(nodes) < 2:
        return False
    one, other = place.rng.sample(nodes, 2)
    one.set(other.value)
    return True


def wrong_type(place: Place) -> bool:
    node = place.pick()
    if node is None:
        return False
    node.set(copy.deepcopy(place.rng.choice(values.OF_OTHER_TYPES)))
    return True


def copy_shape(place: Place) -> bool:
    """Set a scalar in its other JSON spelling: 1 as "1", true as "true", "a" as ["a"]."""
    node = place.pick(of_type(int, str, bool))
    if node is None:
        return False
    value = node.value
    node.set(place.rng.choice([str(value), [value], {"value": value}, json.dumps(value)]))
    return True


def change_metadata(field: str, choices: tuple[Any, ...]) -> Mutation:
    def mutate(place: Place) -> bool:
        place.metadata()[field] = copy.deepcopy(place.rng.choice(choices))
        return True

    return mutate


def use_generate_name(place: Place) -> bool:
    metadata = place.metadata()
    metadata["generateName"] = place.rng.choice(["gn-$ID-", "gn-$ID-", "", "A", "-", "a" * 63, "b" * 250, "a."])
    if place.rng.random() < 0.8:
        metadata.pop("name", None)
    return True


def change_version(place: Place) -> bool:
    others = [one.group_version for one in place.catalogue.siblings(place.resource)]
    place.document["apiVersion"] = place.rng.choice([*others, *others, *values.VERSIONS])
    return True


def change_kind(place: Place) -> bool:
    kind = place.document.get("kind", "")
    place.document["kind"] = place.rng.choice(
        ["", "pod", "Pod", "ConfigMap", str(kind) + "List", str(kind).lower(), None, 5]
    )
    return True


def add_status(place: Place) -> bool:
    properties = place.catalogue.of(place.resource).get("properties", {})
    if "status" not in properties:
        return False
    place.document["status"] = make(place.catalogue, place.rng, properties["status"], "status", 1)
    return True


# Name, weight, mutation.
MUTATIONS: tuple[tuple[str, int, Mutation], ...] = (
    ("null", 4, replaced((None,), anything)),
    ("empty string", 4, replaced(("",), of_type(str))),
    ("empty list", 3, replaced(([],), of_type(list))),
    ("empty map", 3, replaced(({},), of_type(dict))),
    ("list with null", 1, replaced(([None],), of_type(list))),
    ("number", 8, replaced(values.NUMBERS, of_type(int, float))),
    ("wrong type", 3, wrong_type),
    ("other spelling", 2, copy_shape),
    ("odd string", 6, replaced(values.BAD_STRINGS, of_type(str))),
    ("bad name", 4, replaced(values.BAD_NAMES, named)),
    ("quantity", 6, replaced(values.QUANTITIES, quantity)),
    ("null quantity", 1, replaced((None,), quantity)),
    ("number or string", 5, replaced(values.INT_OR_STRING, either)),
    ("duration", 3, replaced(values.DURATIONS, duration)),
    ("enum", 7, change_enum),
    ("boolean", 3, replaced((True, False), of_type(bool))),
    ("field removed", 6, remove),
    ("field added", 16, add_optional),
    ("value generated", 4, make_again),
    ("unknown field", 2, add_unknown),
    ("field renamed", 1, rename_key),
    ("item duplicated", 4, duplicate_item),
    ("item almost duplicated", 4, almost_duplicate_item),
    ("order changed", 2, shuffle),
    ("item removed", 3, remove_item),
    ("many items", 1, many_items),
    ("key changed", 4, change_key),
    ("values swapped", 4, swap_values),
    ("status added", 1, add_status),
    ("namespace", 1, change_metadata("namespace", ("default", "", "other", "$NS", "A B", "d-$ID"))),
    ("name", 1, change_metadata("name", values.BAD_NAMES)),
    ("generateName", 1, use_generate_name),
    ("finalizers", 1, change_metadata("finalizers", values.FINALIZERS)),
    ("ownerReferences", 1, change_metadata("ownerReferences", values.OWNERS)),
    ("labels", 1, change_metadata("labels", values.LABELS)),
    ("annotations", 1, change_metadata("annotations", values.ANNOTATIONS)),
    ("managedFields", 1, change_metadata("managedFields", values.MANAGED_FIELDS)),
    ("resourceVersion", 1, change_metadata("resourceVersion", ("", "0", "1", "x", "${rv}", 5, "-1"))),
    ("uid", 1, change_metadata("uid", ("", "x", "11111111-2222-3333-4444-555555555555", "${uid}"))),
    ("generation", 1, change_metadata("generation", (0, 5, -1, "x"))),
    ("deletionTimestamp", 1, change_metadata("deletionTimestamp", ("2024-01-02T03:04:05Z", None, "x"))),
    ("creationTimestamp", 1, change_metadata("creationTimestamp", ("2024-01-02T03:04:05Z", None, "x", ""))),
    ("grace period", 1, change_metadata("deletionGracePeriodSeconds", (0, -1, 30))),
    ("other version", 1, change_version),
    ("other kind", 1, change_kind),
)  # fmt: skip
_WEIGHTS = [weight for _, weight, _ in MUTATIONS]


def mutate(place: Place, count: int) -> list[str]:
    """Apply a number of mutations in place. Return their names."""
    names: list[str] = []
    for _ in range(count * 6):
        if len(names) == count:
            break
        name, _, mutation = place.rng.choices(MUTATIONS, _WEIGHTS)[0]
        if mutation(place):
            names.append(name)
    return names


def number_of_mutations(rng: Random) -> int:
    return rng.choices((0, 1, 2, 3), (3, 6, 2, 1))[0]
