"""Each tag of declarative validation: its text, its executor, and the causes that it finds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kubechronicle.api.declarative.enforcement import TagCompiler
from kubechronicle.api.declarative.executors import EXECUTORS
from kubechronicle.api.declarative.formats import CUSTOM, FORMATS
from kubechronicle.api.declarative.functions import ENFORCED, EVERY_LEVEL, STANDARD
from kubechronicle.api.declarative.rules import RuleOperation
from kubechronicle.api.declarative.tags import PREFIX, Tag, parse, parsed
from kubechronicle.api.kinds import reading
from kubechronicle.api.kinds.reading import Package, PublishedRelease

MINORS = ("1.36", "1.37")
Check = Callable[..., list[str]]


def all_tags(minor: str) -> Iterator[Tag]:
    for declared in reading.release(minor).types():
        yield from parsed(declared.tags)
        for field in declared.fields:
            yield from parsed(field.tags)


def test_the_parts_of_a_tag() -> None:
    tag = parse('+k8s:beta(since: "1.37")=+k8s:ifEnabled(Gate)=+k8s:minimum=0')
    assert [each.name for each in tag.parts()] == ["beta", "ifEnabled", "minimum"]
    assert tag.named == {"since": "1.37"}
    assert tag.inner is not None
    assert tag.inner.argument == "Gate"
    assert tag.inner.inner is not None
    assert tag.inner.inner.value == "0"


@pytest.mark.parametrize(
    ("text", "value"),
    [("+k8s:maximum=10 # a reason", "10"), ('+k8s:format="k8s-uuid"', "k8s-uuid"), ("+k8s:required", "")],
)
def test_a_value_has_no_quotes_and_no_comment(text: str, value: str) -> None:
    assert parse(text).value == value


def test_arguments_have_types() -> None:
    assert parse('+k8s:item(type: "A", port: 80, ready: true)=+k8s:immutable').named == {
        "type": "A",
        "port": 80,
        "ready": True,
    }
    assert parse('+k8s:ifMode("Queue")=+k8s:required').argument == "Queue"


def test_other_text_is_no_tag() -> None:
    with pytest.raises(ValueError, match="not a tag"):
        parse("+union")
    assert parsed(["+union", "+k8s:required", "+k8s:optional"])[0].name == "optional"


@pytest.mark.parametrize("minor", MINORS)
def test_every_tag_of_a_release_has_an_executor(minor: str) -> None:
    names = {each.name for tag in all_tags(minor) for each in tag.parts()}
    assert names - EXECUTORS.keys() == set()


def test_every_executor_has_a_tag() -> None:
    names = {each.name for minor in MINORS for tag in all_tags(minor) for each in tag.parts()}
    assert EXECUTORS.keys() - names == set()


@pytest.mark.parametrize("minor", MINORS)
def test_every_type_of_a_release_is_compiled(minor: str) -> None:
    release = reading.release(minor)
    compiler = TagCompiler(release, EVERY_LEVEL)
    for declared in release.types():
        compiler.rule(declared.full_name)


def test_formats_and_rules_by_hand_are_those_of_the_tags() -> None:
    formats = {
        each.value for minor in MINORS for tag in all_tags(minor) for each in tag.parts() if each.name == "format"
    }
    assert formats == FORMATS.keys()
    release = reading.release("1.37")
    for name in CUSTOM:
        kind, _, field = name.rpartition(".")
        assert any("customValidation" in tag for tag in release.declared(kind).members[field][0].tags)


# -- the causes of each tag -------------------------------------------------------------------------------------------


@pytest.fixture
def check(tmp_path: Path) -> Check:
    """Return a function that validates a value of the type T of a package, and returns the causes as texts."""

    def run(
        types: str, new: dict[str, Any], old: dict[str, Any] | None = None, *, levels: Any = ENFORCED, **options: bool
    ) -> list[str]:
        file = tmp_path / "x.v1.txt"
        file.write_text("# Types\ngroup=x version=v1 model=x\n\n" + types)
        release = PublishedRelease.__new__(PublishedRelease)
        release.packages = {"x.v1": Package(release, file)}
        rule = TagCompiler(release, levels).rule("x.v1.T")
        if rule is None:
            return ["no rule"]
        return [str(cause) for cause in rule(RuleOperation(update=old is not None, option=options.get), "", new, old)]

    return run


def field(kind: str, *tags: str, marks: str = "") -> str:
    return f"T struct\n  f 1 {kind} {marks}".rstrip() + "".join(f"\n    {PREFIX}{tag}" for tag in tags) + "\n"


@pytest.mark.parametrize("kind", ["string", "*string", "int32", "bool", "[]string", "map[string]string", "*U"])
def test_required_and_forbidden(check: Check, kind: str) -> None:
    value = {"string": "a", "*string": "", "int32": 1, "bool": True, "[]string": ["a"], "*U": {}}.get(kind, {"a": "b"})
    types = "\nU struct\n"
    assert check(field(kind, "required") + types, {}) == ["f: Required value"]
    assert check(field(kind, "required") + types, {"f": value}) == []
    assert check(field(kind, "forbidden") + types, {"f": value}) == ["f: Forbidden"]
    assert check(field(kind, "forbidden") + types, {}) == []


def test_optional_values_have_no_other_rules(check: Check) -> None:
    assert check(field("string", "optional", "format=k8s-uuid"), {}) == []
    assert len(check(field("string", "format=k8s-uuid"), {})) == 1


def test_optional_values_with_a_default_are_required_of_the_server(check: Check) -> None:
    assert check(field("*int32", "optional", "minimum=1", marks="default=1"), {}) == ["f: Required value"]
    assert check(field("int32", "optional", "minimum=0", marks="default=0"), {}) == []


def test_immutable(check: Check) -> None:
    types = field("*string", "immutable", "optional", "format=k8s-uuid")
    assert check(types, {"f": "a"}, {"f": "b"}) == ["f: Invalid value: null: field is immutable"]
    assert check(types, {}, {"f": "b"}) == ["f: Invalid value: null: field is immutable"]
    assert check(types, {"f": "b"}, {"f": "b"}) == []


def test_unchanged_values_are_not_validated_again(check: Check) -> None:
    types = field("int32", "minimum=1")
    assert check(types, {"f": -1}, {"f": -1}) == []
    assert check(types, {"f": -1}, {"f": -2}) == ["f: Invalid value: -1: must be greater than or equal to 1"]


def test_numbers(check: Check) -> None:
    assert check(field("int32", "maximum=1"), {"f": 2}) == ["f: Invalid value: 2: must be less than or equal to 1"]
    assert check(field("*int64", "monotonic"), {"f": 1}, {"f": 2}) == [
        "f: Invalid value: 1: may not be decreased from 2"
    ]
    assert check(field("*int64", "monotonic"), {"f": 2}, {"f": 1}) == []


def test_lengths(check: Check) -> None:
    assert check(field("string", "maxLength=2"), {"f": "ééé"}) == ["f: Too long: may not be more than 2 characters"]
    assert check(field("string", "maxLength=2"), {"f": "éé"}) == []
    assert check(field("string", "maxBytes=3"), {"f": "éé"}) == ["f: Too long: may not be more than 3 bytes"]
    assert check(field("[]string", "maxItems=1"), {"f": ["a", "b"]}) == ["f: Too many: 2: must have at most 1 item"]


def test_enum(check: Check) -> None:
    types = 'T struct\n  f 1 E ?\n\nE string enum\n  +k8s:enum\n  "B"\n  "A"\n'
    assert check(types, {"f": "C"}) == ['f: Unsupported value: "C": supported values: "B", "A"']
    assert check(types, {"f": "A"}) == []


def test_options(check: Check) -> None:
    types = field("int32", "ifEnabled(G)=+k8s:minimum=0", "ifDisabled(G)=+k8s:minimum=1")
    assert check(types, {"f": 0}, G=True) == []
    assert check(types, {"f": 0}, G=False) == ["f: Invalid value: 0: must be greater than or equal to 1"]
    assert check(types, {"f": 1}) == ['f: Internal error: undefined validation option "G"'] * 2


def test_levels(check: Check) -> None:
    beta = field("string", 'beta(since: "1.37")=+k8s:required')
    assert check(beta, {}) == ["f: Required value"]
    assert check(beta, {}, levels={STANDARD}) == ["no rule"]
    alpha = field("string", 'alpha(since: "1.37")=+k8s:required')
    assert check(alpha, {}) == ["no rule"]
    assert check(alpha, {}, levels=EVERY_LEVEL) == ["f: Required value"]


def test_what_is_not_enforced_stops_other_rules_all_the_same(check: Check) -> None:
    assert check(field("string", "alpha=+k8s:optional", "format=k8s-uuid"), {}) == []
    assert check(field("string", "alpha=+k8s:required", "format=k8s-uuid"), {}) == []


def test_each_item_key_and_value(check: Check) -> None:
    assert check(field("[]string", "eachVal=+k8s:maxBytes=1"), {"f": ["a", "bb"]}) == [
        "f[1]: Too long: may not be more than 1 byte"
    ]
    assert check(field("map[string]string", "eachVal=+k8s:maxBytes=1"), {"f": {"k": "bb"}}) == [
        "f[k]: Too long: may not be more than 1 byte"
    ]
    assert check(field("map[string]string", "eachKey=+k8s:maxBytes=1"), {"f": {"kk": "b"}}) == [
        "f: Too long: may not be more than 1 byte"
    ]
    assert check(field("map[string]string", "eachKey=+k8s:maxBytes=1"), {"f": {"kk": "b"}}, {"f": {"kk": "a"}}) == []


@pytest.mark.parametrize("tag", ["listType=set", "unique=set"])
def test_items_of_a_set(check: Check, tag: str) -> None:
    types = field("[]string", tag, "eachVal=+k8s:maxBytes=1")
    assert check(types, {"f": ["a", "a", "b", "a"]}) == ['f[1]: Duplicate value: "a"', 'f[3]: Duplicate value: "a"']
    assert check(types, {"f": ["aa", "bb"]}, {"f": ["aa"]}) == ["f[1]: Too long: may not be more than 1 byte"]


ITEMS = "\nU struct\n  k 1 string ?\n  n 2 int32 ?\n    +k8s:minimum=1\n"


@pytest.mark.parametrize("tag", ["listType=map", "unique=map"])
def test_items_with_keys(check: Check, tag: str) -> None:
    types = field("[]U", tag, "listMapKey=k") + ITEMS
    assert check(types, {"f": [{"k": "a", "n": 1}, {"n": 2, "k": "a"}]}) == ['f[1]: Duplicate value: {"k":"a","n":2}']
    old = {"f": [{"k": "a", "n": -1}, {"k": "b", "n": 1}]}
    assert check(types, {"f": [{"k": "b", "n": -1}, {"k": "a", "n": -1}]}, old) == [
        "f[0].n: Invalid value: -1: must be greater than or equal to 1"
    ]


def test_uniqueness_that_other_code_checks(check: Check) -> None:
    types = field("[]U", "listType=map", "listMapKey=k", "customUnique") + ITEMS
    assert check(types, {"f": [{"k": "a", "n": 1}, {"k": "a", "n": 1}]}) == []


def test_an_item_and_at_most_one_of_the_items(check: Check) -> None:
    types = field("[]U", "listType=map", "listMapKey=k", 'item(k: "a")=+k8s:immutable') + ITEMS
    assert check(types, {"f": [{"k": "a", "n": 2}]}, {"f": [{"k": "a", "n": 1}]}) == [
        "f[0]: Invalid value: null: field is immutable"
    ]
    members = [f'item(k: "{key}")=+k8s:zeroOrOneOfMember' for key in "ab"]
    types = field("[]U", "listType=map", "listMapKey=k", *members) + ITEMS
    both = {"f": [{"k": "a", "n": 1}, {"k": "b", "n": 1}]}
    assert check(types, both) == [
        'f: Invalid value: "{f[{\\"k\\": \\"a\\"}], f[{\\"k\\": \\"b\\"}]}": '
        'must specify at most one of: `f[{"k": "a"}]`, `f[{"k": "b"}]`'
    ]
    assert check(types, {"f": []}) == []


def test_a_field_of_a_struct(check: Check) -> None:
    types = "T struct\n  f 1 U\n    +k8s:subfield(k)=+k8s:maxBytes=1\n\nU struct\n  k 1 string ?\n"
    assert check(types, {"f": {"k": "aa"}}) == ["f.k: Too long: may not be more than 1 byte"]
    assert check(types, {"f": {"k": "aa", "n": 1}}, {"f": {"k": "aa"}}) == []


@pytest.mark.parametrize(
    ("constraint", "old", "new", "detail"),
    [
        ("NoSet", None, 1, "field cannot be set once created"),
        ("NoUnset", 1, None, "field cannot be cleared once set"),
        ("NoModify", 1, 2, "field cannot be modified once set"),
    ],
)
def test_constraints_of_updates(check: Check, constraint: str, old: Any, new: Any, detail: str) -> None:
    values = [{} if value is None else {"f": value} for value in (new, old)]
    assert check(field("*int32", f"update={constraint}"), *values) == [f"f: Invalid value: null: {detail}"]
    for other in {"NoSet", "NoUnset", "NoModify"} - {constraint}:
        assert check(field("*int32", f"update={other}"), *values) == []


def test_constraints_of_lists(check: Check) -> None:
    types = field("[]string", "listType=set", "update=NoAddItem", "update=NoRemoveItem")
    assert check(types, {"f": ["a", "c"]}, {"f": ["a", "b"]}) == [
        "f[1]: Forbidden: item may not be added",
        "f: Forbidden: item may not be removed",
    ]


def test_unions(check: Check) -> None:
    types = (
        "T struct\n  a 1 *string ?\n    +k8s:optional\n    +k8s:unionMember\n  b 2 []string ?\n    +k8s:unionMember\n"
    )
    assert check(types, {"a": ""}) == []
    assert check(types, {}) == ['<nil>: Invalid value: "": must specify one of: `a`, `b`'.replace("<nil>", "")]
    both = {"a": "", "b": ["c"]}
    assert check(types, both) == [': Invalid value: "{a, b}": must specify exactly one of: `a`, `b`']
    assert check(types, {"a": "d", "b": ["c"]}, both) == []


@pytest.mark.parametrize(("of", "on"), [("modeDiscriminator", "ifMode"), ("discriminator", "member")])
def test_modes(check: Check, of: str, on: str) -> None:
    types = (
        f"T struct\n  m 1 string ?\n    +k8s:{of}\n"
        f'  a 2 *int32 ?\n    +k8s:optional\n    +k8s:{on}("A")=+k8s:required\n    +k8s:{on}("C")=+k8s:optional\n'
    )
    assert check(types, {"m": "A"}) == ["a: Required value"]
    assert check(types, {"m": "B", "a": 1}) == ["a: Forbidden"]
    assert check(types, {"m": "C", "a": 1}) == []
    assert check(types, {"m": "B", "a": 1}, {"m": "B", "a": 1}) == []
    assert check(types, {"m": "B", "a": 1}, {"m": "A", "a": 1}) == ["a: Forbidden"]


def test_fields_that_need_or_exclude_others(check: Check) -> None:
    types = "T struct\n  a 1 *int32 ?\n    +k8s:dependentRequired(b)\n  b 2 *int32 ?\n"
    assert check(types, {"a": 1}) == ["b: Required value: must be set when a is set"]
    assert check(types, {"b": 1}) == []
    types = types.replace("Required", "Forbidden")
    assert check(types, {"a": 1, "b": 1}) == ["b: Forbidden: may not be set when a is set"]


def test_opaque_types(check: Check) -> None:
    below = "\nU struct\n  n 1 int32\n    +k8s:minimum=1\n"
    assert check("T struct\n  f 1 U\n" + below, {}) == ["f.n: Invalid value: 0: must be greater than or equal to 1"]
    assert check("T struct\n  f 1 U\n    +k8s:opaqueType\n" + below, {}) == ["no rule"]
    assert check("T struct\n  f 1 []U\n    +k8s:eachVal=+k8s:opaqueType\n" + below, {"f": [{}]}) == ["no rule"]


def test_types_that_contain_themselves(check: Check) -> None:
    types = "T struct\n  n 1 int32\n    +k8s:maximum=1\n  t 2 []T\n"
    assert check(types, {"t": [{"t": [{"n": 2}]}]}) == [
        "t[0].t[0].n: Invalid value: 2: must be less than or equal to 1"
    ]


def test_inlined_structs_have_no_path_of_their_own(check: Check) -> None:
    types = "T struct\n  . - U\n\nU struct\n  n 1 int32\n    +k8s:minimum=1\n"
    assert check(types, {}) == ["n: Invalid value: 0: must be greater than or equal to 1"]


def test_rules_that_kubernetes_writes_by_hand() -> None:
    rule = TagCompiler(reading.release("1.37")).rule("core.v1.EvictionResponder")
    assert rule is not None
    given = {"name": "x.k8s.io/a", "priority": 5}
    assert [str(cause) for cause in rule(RuleOperation(update=False), "spec", given, None)] == [
        'spec.name: Invalid value: "x.k8s.io/a": domain names *.k8s.io, *.kubernetes.io are reserved',
        "spec.priority: Invalid value: 5: priorities 0-999 are reserved for responders with *.k8s.io suffix",
    ]


def test_subresources_with_rules() -> None:
    compiler = TagCompiler(reading.release("1.37"))
    assert compiler.subresources("apps.v1.Deployment") == {"/", "/scale", "/status"}
    assert compiler.subresources("autoscaling.v1.Scale") == {"/scale"}
