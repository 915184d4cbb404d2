"""Executors: from a tag and its place to functions of validation, as k8s.io/code-generator's ``validation-gen`` does.

A tag around another wraps the functions of the inner one. Some rules need several tags: the keys of a list, the members
of a union, constraints of updates. The place collects these. They become a function after all tags are read: it is
deferred, and so comes after the others.

    +k8s:listType=map, +k8s:listMapKey=name    collected; deferred: no two items with one name
    +k8s:eachVal=+k8s:format=k8s-short-name    deferred: the format, for each item
    +k8s:unionMember                           deferred to the struct: one of its members is set
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, Final, TypeAlias

from kubechronicle.api.declarative import go_values, groups, rules
from kubechronicle.api.declarative.formats import CUSTOM, FORMATS
from kubechronicle.api.declarative.functions import ALPHA, BETA, STANDARD, Found, TagFunction, kept, sequence
from kubechronicle.api.declarative.groups import Member
from kubechronicle.api.declarative.places import ListFacts, Modes, SharedPlace, ValuePlace
from kubechronicle.api.declarative.rules import Identity, Rule
from kubechronicle.api.declarative.tags import Tag, parsed
from kubechronicle.api.errors.field_errors import go_quote
from kubechronicle.api.kinds.reading import LIST, MAP, GoType, KindField, PublishedRelease

Executor: TypeAlias = Callable[[Tag, ValuePlace], Found]


def found(all_tags: Iterable[Tag], place: ValuePlace) -> Found:
    """Return the functions of the tags of a value. ValueError for a tag without an executor."""
    result = Found()
    for tag in all_tags:
        result.add(_execute(tag, place))
    return result


def _execute(tag: Tag, place: ValuePlace) -> Found:
    executor = EXECUTORS.get(tag.name)
    if executor is None:
        raise ValueError(f"no executor of the tag {tag.name}")
    return executor(tag, place)


def _inner(tag: Tag, place: ValuePlace) -> Found:
    assert tag.inner is not None, f"{tag.name} wraps a tag"
    return _execute(tag.inner, place)


def _of(make: Callable[[Tag, ValuePlace], Rule], *, stops: bool = False, stops_code: bool = True) -> Executor:
    """Return the executor of a tag with one rule."""
    return lambda tag, place: Found([TagFunction(make(tag, place), stops, stops_code=stops_code)])


# -- tags around others -----------------------------------------------------------------------------------------------


def _level(level: str) -> Executor:
    def execute(tag: Tag, place: ValuePlace) -> Found:
        outer, place.level = place.level, level
        made = _inner(tag, place)
        place.level = outer
        return made.wrapped(lambda function: replace(function, level=function.level or level))

    return execute


def _if_option(wanted: bool) -> Executor:
    def execute(tag: Tag, place: ValuePlace) -> Found:
        return _inner(tag, place).wrapped(
            lambda function: function.around(rules.if_option(tag.argument, wanted, function.rule))
        )

    return execute


def _each_value(tag: Tag, place: ValuePlace) -> Found:
    of = place.native.of
    assert of is not None, "eachVal is a tag of lists and maps"
    made = _inner(tag, ValuePlace(place.release, of, SharedPlace(), place.enforced, level=place.level))

    def wrapped() -> Found:
        return Found(functions=made.resolved()).wrapped(
            lambda function: function.around(each(place.release, place.native, place.facts, function.rule))
        )

    return Found(deferred=[wrapped], opaque_items=made.opaque)


def each(release: PublishedRelease, kind: GoType, facts: ListFacts, rule: Rule) -> Rule:
    """Return the rule of a list or map that applies a rule to each of its values."""
    kind = go_values.native(release, kind)
    assert kind.of is not None
    same = go_values.same(release, kind.of)
    if kind.shape == MAP:
        return rules.each_value(rule, same)
    return rules.each_item(rule, identity(release, kind, facts), same if facts.unique == "map" else None)


def identity(release: PublishedRelease, kind: GoType, facts: ListFacts) -> Identity | None:
    """Return the function that knows an item of a list again, None if there is none."""
    if facts.unique == "map":
        declared = go_values.struct_of(release, kind.of) if kind.of is not None else None
        assert declared is not None, "items with keys are structs"
        return go_values.keyed(release, declared, facts.keys)
    return go_values.whole if facts.unique == "set" else None


def _each_key(tag: Tag, place: ValuePlace) -> Found:
    made = _inner(
        tag, ValuePlace(place.release, GoType("", "string"), SharedPlace(), place.enforced, level=place.level)
    )
    result = made.wrapped(lambda function: function.around(rules.each_key(function.rule)))
    return replace(result, opaque=False, opaque_keys=made.opaque)


def _item(tag: Tag, place: ValuePlace) -> Found:
    of = place.native.of
    declared = go_values.struct_of(place.release, of) if of is not None else None
    assert of is not None
    assert declared is not None, "item is a tag of lists of structs"
    label = f"{{{', '.join(f'{go_quote(key)}: {_shown(value)}' for key, value in tag.named.items())}}}"
    wanted = [
        (key, go_values.zero(place.release, declared.members[key][0].type), value) for key, value in tag.named.items()
    ]

    def matches(item: Any) -> bool:
        return all(item.get(key, absent) == value for key, absent, value in wanted)

    inner = ValuePlace(place.release, of, place.items, place.enforced, level=place.level, matches=matches)
    inner.label = f"{place.name}[{label}]"
    made = _inner(tag, inner)
    same = go_values.same(place.release, of)
    own = Found(made.functions, made.deferred).wrapped(
        lambda function: function.around(rules.one_item(function.rule, matches, same), label)
    )
    # The rules of the whole list come with those of its items.
    return Found(deferred=[lambda: own, *made.of_parent])


def _shown(value: str | int | bool) -> str:
    return go_quote(value) if isinstance(value, str) else str(value).lower()


def _subfield(tag: Tag, place: ValuePlace) -> Found:
    declared = go_values.struct_of(place.release, place.type)
    assert declared is not None, "subfield is a tag of structs"
    below, _ = declared.members[tag.argument]
    name, absent, _ = go_values.member(place.release, below)
    same = go_values.same(place.release, below.type)
    inner = ValuePlace(place.release, below.type, SharedPlace(), place.enforced, name, declared, below, place.level)
    made = _inner(tag, inner)
    first = name not in place.subfields
    place.subfields.add(name)

    def wrapped() -> Found:
        functions = list(made.functions)
        if first:
            # The stops of the field's own rules stop these, too, once for each field.
            own = ValuePlace(place.release, below.type, SharedPlace(), place.enforced, name, declared, below)
            stops = found(parsed(below.tags), own).resolved()
            functions += [replace(function, silent=True) for function in stops if function.stops]
        all_of_it = Found(functions, list(made.deferred))
        return all_of_it.wrapped(
            lambda function: function.around(rules.subfield(function.rule, name, absent, same), name)
        )

    return Found(deferred=[wrapped])


# -- tags that count together -----------------------------------------------------------------------------------------


def _list_type(tag: Tag, place: ValuePlace) -> Found:
    if tag.value in ("set", "map"):
        place.facts.unique = tag.value
    return Found(deferred=[lambda: _unique_items(place)])


def _list_map_key(tag: Tag, place: ValuePlace) -> Found:
    place.facts.keys.append(tag.value)
    return Found()


def _custom_unique(tag: Tag, place: ValuePlace) -> Found:
    place.facts.elsewhere = True
    return Found()


def _unique_items(place: ValuePlace) -> Found:
    facts, release, kind = place.facts, place.release, place.native
    if facts.done or facts.elsewhere or not facts.unique:
        return Found()
    facts.done = True
    of, mark = kind.of, identity(release, kind, facts)
    assert of is not None
    assert mark is not None
    return Found([TagFunction(rules.unique(mark, lambda item: go_values.shown(release, of, item)))])


def _update(tag: Tag, place: ValuePlace) -> Found:
    place.constraints.append(tag.value)

    def made() -> Found:
        chosen, place.constraints = place.constraints, []
        return Found([TagFunction(_update_rule(chosen, place), stops=True)] if chosen else [])

    return Found(deferred=[made])


def _update_rule(chosen: list[str], place: ValuePlace) -> Rule:
    kind = place.native
    if kind.shape == LIST:
        mark = identity(place.release, kind, place.facts) or go_values.whole
        return rules.update_items(chosen, mark)
    if kind.shape == MAP:
        return rules.update_items(chosen, None)
    is_struct = go_values.struct_of(place.release, place.type) is not None
    return rules.update(chosen, place.is_set, is_struct=is_struct, is_pointer=place.is_pointer)


def _union(*, may_be_empty: bool) -> Executor:
    def execute(tag: Tag, place: ValuePlace) -> Found:
        known = place.shared.at_most_one if may_be_empty else place.shared.unions
        known.setdefault(str(tag.named.get("union", "")), []).append(_member(place))

        def made() -> Found:
            unions = [members for _, members in sorted(known.items())]
            known.clear()
            return Found([TagFunction(groups.union(members, may_be_empty=may_be_empty)) for members in unions])

        return Found(of_parent=[made])

    return execute


def _member(place: ValuePlace) -> Member:
    if place.matches is not None:
        matches = place.matches
        return Member(place.label, lambda items: any(matches(item) for item in items or ()))
    assert place.of_field is not None, "members of a union are fields or items"
    name, absent, is_set = go_values.member(place.release, place.of_field)
    return Member(name, groups.field_is_set(name, absent, is_set))


def _discriminator(tag: Tag, place: ValuePlace) -> Found:
    _modes(tag, place).discriminator = place.of_field
    return Found()


def _modes(tag: Tag, place: ValuePlace) -> Modes:
    # The argument is called "discriminator" up to 1.36, and "modality" from 1.37 on.
    name = str(tag.named.get("modality", tag.named.get("discriminator", "")))
    return place.shared.modes.setdefault(name, Modes())


def _if_mode(tag: Tag, place: ValuePlace) -> Found:
    assert place.of_field is not None, "modes are of fields"
    mode = str(tag.named.get("mode", tag.named.get("value", tag.argument)))
    _, by_mode = _modes(tag, place).fields.setdefault(place.of_field.go_name, (place.of_field, {}))
    level = place.level
    functions = [replace(each, level=each.level or level) for each in _inner(tag, place).functions]
    by_mode.setdefault(mode, []).extend(functions)

    def made() -> Found:
        modes, place.shared.modes = place.shared.modes, {}
        return Found(
            [
                _of_modes(fields, group, place)
                for _, group in sorted(modes.items())
                for _, fields in sorted(group.fields.items())
            ]
        )

    return Found(of_parent=[made])


def _of_modes(fields: tuple[KindField, dict[str, list[TagFunction]]], modes: Modes, place: ValuePlace) -> TagFunction:
    """Return the function of a field by the modes of its struct. In a mode without a rule, the field is forbidden."""
    assert modes.discriminator is not None, "a mode has a discriminator"
    release, (of, by_mode) = place.release, fields
    name, absent, is_set = go_values.member(release, of)
    mode, no_mode, _ = go_values.member(release, modes.discriminator)
    levels = [function.level for functions in by_mode.values() for function in functions]
    level = levels[0] if len(set(levels)) == 1 else next((each for each in levels if each in place.enforced), ALPHA)
    of_bool = isinstance(no_mode, bool)
    by_value = {
        (value == "true") if of_bool else value: sequence(kept(functions, place.enforced))
        for value, functions in by_mode.items()
    }
    otherwise = rules.forbidden_rule(is_set) if len(set(levels)) == 1 or STANDARD in place.enforced else None
    same = go_values.same(release, of.type)
    return TagFunction(
        groups.ByMode(
            name=name,
            zero=absent,
            same=same,
            discriminator=mode,
            no_mode=no_mode,
            rules=by_value,
            otherwise=otherwise,
        ),
        level=level,
    )


def _dependent(*, wanted: bool) -> Executor:
    def execute(tag: Tag, place: ValuePlace) -> Found:
        assert place.parent is not None, "a field depends on another one"
        trigger = _member(place)
        name, absent, is_set = go_values.member(place.release, place.parent.members[tag.argument][0])
        other = Member(name, groups.field_is_set(name, absent, is_set))
        return Found(of_parent=[lambda: Found([TagFunction(groups.dependent(trigger, other, wanted=wanted))])])

    return execute


# -- tags with one rule -----------------------------------------------------------------------------------------------


def _required(tag: Tag, place: ValuePlace) -> Found:
    return Found([TagFunction(rules.is_set_rule(place.is_set), stops=True)])


def _optional(tag: Tag, place: ValuePlace) -> Found:
    """Let an absent value be. One with a default is there for the server, unless the default is the zero value."""
    assert place.of_field is not None, "optional is a tag of fields"
    default, absent = place.of_field.default, go_values.zero(place.release, place.type)
    if default is None:
        is_set = place.is_set
        return Found([TagFunction(rules.optional(is_set), stops=True, silent=True, optional=is_set)])
    if default == absent:
        return Found()
    return _required(tag, place)


def _forbidden(tag: Tag, place: ValuePlace) -> Found:
    """Forbid the value. An absent one has no other rules."""
    forbidden = TagFunction(rules.forbidden_rule(place.is_set), stops=True)
    return Found([forbidden, TagFunction(rules.optional(place.is_set), stops=True, silent=True)])


def _enum(tag: Tag, place: ValuePlace) -> Found:
    return Found([TagFunction(rules.enum(place.release.declared(place.type.name).values))])


def _custom(tag: Tag, place: ValuePlace) -> Found:
    assert place.parent is not None, "the rule is known by the field"
    return Found([TagFunction(CUSTOM[f"{place.parent.full_name}.{place.name}"])])


def _nothing(tag: Tag, place: ValuePlace) -> Found:
    """Return nothing: the tag tells which subresources the kind has rules for (compiler.py)."""
    return Found()


EXECUTORS: Final[Mapping[str, Executor]] = {
    "alpha": _level(ALPHA),
    "beta": _level(BETA),
    "customUnique": _custom_unique,
    "customValidation": _custom,
    "dependentForbidden": _dependent(wanted=False),
    "dependentRequired": _dependent(wanted=True),
    "discriminator": _discriminator,
    "eachKey": _each_key,
    "eachVal": _each_value,
    "enum": _enum,
    "forbidden": _forbidden,
    "format": _of(lambda tag, place: FORMATS[tag.value]),
    "ifDisabled": _if_option(False),
    "ifEnabled": _if_option(True),
    "ifMode": _if_mode,
    "immutable": _of(lambda tag, place: rules.immutable, stops=True, stops_code=False),
    "isSubresource": _nothing,
    "item": _item,
    "listMapKey": _list_map_key,
    "listType": _list_type,
    "maxBytes": _of(lambda tag, place: rules.max_bytes(int(tag.value))),
    "maxItems": _of(lambda tag, place: rules.max_items(int(tag.value)), stops=True),
    "maxLength": _of(lambda tag, place: rules.max_length(int(tag.value))),
    "maximum": _of(lambda tag, place: rules.maximum(int(tag.value))),
    "member": _if_mode,
    "minimum": _of(lambda tag, place: rules.minimum(int(tag.value))),
    "modeDiscriminator": _discriminator,
    "monotonic": _of(lambda tag, place: rules.monotonic),
    "opaqueType": lambda tag, place: Found(opaque=True),
    "optional": _optional,
    "required": _required,
    "subfield": _subfield,
    "supportsSubresource": _nothing,
    "unionMember": _union(may_be_empty=False),
    "unique": _list_type,
    "update": _update,
    "zeroOrOneOfMember": _union(may_be_empty=True),
}
"""By the name of the tag."""
