"""The files of api/kinds, from facts: one of types and one of descriptions for each package.

Pure: packages as facts.go prints them become texts. api/kinds/reading.py describes the form of the texts.
Descriptions are those of the published OpenAPI documents (kube-openapi ``generateDescription``).
"""

from __future__ import annotations

import json
import re
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

Fact = dict[str, Any]

_MACHINERY: Final = re.compile(r"k8s\.io/apimachinery/pkg/(?:api/|util/)?(resource|runtime|types|intstr|version)")
_GROUP_VERSION: Final = re.compile(
    r"k8s\.io/(?:api|(?:apimachinery|apiextensions-api|apiextensions-apiserver|kube-aggregator)/pkg/apis)/(\w+)/(v\w+)"
)
_INTERNAL: Final = re.compile(r"k8s\.io/kubernetes/pkg/apis/(\w+)")
_NAME: Final = re.compile(r"(k8s\.io/[\w./-]+)\.(\w+)")

# Tags whose facts have a place in a line, and those of generators of code that is not needed here.
_SAID: Final = frozenset(
    (
        *("optional", "required", "listType", "listMapKey", "mapType", "structType", "default", "enum"),
        *("patchStrategy", "patchMergeKey", "genclient", "nonNamespaced", "protobuf", "build", "groupName"),
    )
)
_OF_GENERATORS: Final = (
    *("genclient:", "protobuf.", "k8s:prerelease-lifecycle-gen", "k8s:deepcopy-gen", "k8s:conversion-", "k8s:openapi-"),
    *("k8s:protobuf-gen", "k8s:defaulter-gen", "k8s:validation-gen-nolint", "kubebuilder:"),
)
_TAG: Final = re.compile(r"\+([A-Za-z][\w:.-]*)(.*)")
_LIVES: Final = {"Introduced": "introduced", "Deprecated": "deprecated", "Removed": "removed"}


class NoTypesError(Exception):
    """A package has no types, which would be left out silently."""


def short(path: str) -> str:
    """Return a package's name in api/kinds: ``core.v1``, ``resource``, and ``internal.core`` for internal types."""
    internal = _INTERNAL.fullmatch(path)
    if internal is not None:
        return f"internal.{internal[1]}"
    found = _GROUP_VERSION.fullmatch(path)
    if found is not None:
        return f"{found[1]}.{found[2]}"
    other = _MACHINERY.fullmatch(path)
    if other is None:
        raise ValueError(f"{path} is no package of kinds")
    return other[1]


def files(packages: Sequence[Fact], release: str) -> dict[str, str]:
    """Return name -> text of all files of a release. NoTypesError: a package is empty."""
    _settle_fields(packages)
    _name_internal_fields(packages)
    wanted = _wanted(packages)
    constants = {f"{each['path']}.{one['name']}": one["value"] for each in packages for one in each["constants"]}
    values = _values(packages)
    enums = {
        f"{package['path']}.{each['name']}"
        for package in packages
        for each in package["types"]
        if "enum" in _tags([*each["earlier"], *each["doc"]])
    }
    made: dict[str, str] = {}
    for package in packages:
        writer = _Writer(package, constants, values, enums)
        kinds = [each for each in package["types"] if f"{package['path']}.{each['name']}" in wanted]
        if not kinds:
            raise NoTypesError(f"{package['path']} declares no types: have they moved to another module?")
        name = short(package["path"])
        if _INTERNAL.fullmatch(package["path"]):
            made[f"{name.replace('.', '/')}.txt"] = writer.types(kinds, release)
            continue
        made[f"{name}.txt"] = writer.types(kinds, release)
        made[f"descriptions/{name}.txt"] = writer.descriptions(kinds, release)
    return made


def _settle_fields(packages: Iterable[Fact]) -> None:
    """Give the fields of a struct to types that are declared as this struct, and to kinds that are aliases of it.

    Drop the embedded fields of types with a decoder of their own, such as that of Time: they are not in JSON.
    """
    known = {f"{package['path']}.{each['name']}": each for package in packages for each in package["types"]}
    for package in packages:
        package["types"] = [each for each in package["types"] if not each["alias"] or each["name"] in package["kinds"]]
        for each in package["types"]:
            if "UnmarshalJSON" in (each["methods"] or ()):
                each["fields"] = [field for field in each["fields"] if not field["embedded"]]
            other = known.get(each["is"])
            if other is not None and other["is"] == "struct":
                each["is"], each["fields"] = "struct", other["fields"]


def _name_internal_fields(packages: Iterable[Fact]) -> None:
    """Give the fields of internal types the JSON names of the fields of v1, and drop their comments."""
    known = {f"{package['path']}.{each['name']}": each for package in packages for each in package["types"]}
    for package in packages:
        internal = _INTERNAL.fullmatch(package["path"])
        if internal is None:
            continue
        for each in package["types"]:
            counterpart = known.get(f"k8s.io/api/{internal[1]}/v1.{each['name']}", {"fields": ()})
            names = {field["name"]: _json_name(field) for field in counterpart["fields"]}
            each["doc"] = each["earlier"] = ()
            for field in each["fields"]:
                field["doc"] = ()
                if not field["embedded"]:
                    field["json"] = names.get(field["name"]) or lower_first(field["name"])


def lower_first(name: str) -> str:
    """Return the JSON name of a Go name. Example: FSType -> fsType, IQN -> iqn, HostPath -> hostPath."""
    count = next((index for index, letter in enumerate(name) if not letter.isupper()), len(name))
    if 1 < count < len(name) and name[count].islower():
        count -= 1
    return name[:count].lower() + name[count:]


def _values(packages: Iterable[Fact]) -> dict[str, dict[str, Fact]]:
    """Return type -> value -> constant: of equal values, the one with the longer comment (kube-openapi)."""
    made: dict[str, dict[str, Fact]] = {}
    for package in packages:
        for each in package["constants"]:
            known = made.setdefault(each["type"], {})
            other = known.get(each["value"])
            if other is None or len(" ".join(other["doc"])) < len(" ".join(each["doc"])):
                known[each["value"]] = each
    return made


def _wanted(packages: Sequence[Fact]) -> set[str]:
    """Return the types to write: the structs of group versions, and all types that these name."""
    known = {f"{package['path']}.{each['name']}": each for package in packages for each in package["types"]}
    pending = [
        f"{package['path']}.{each['name']}"
        for package in packages
        if _GROUP_VERSION.fullmatch(package["path"])
        or _INTERNAL.fullmatch(package["path"])
        or package["path"].endswith("/version")
        for each in package["types"]
        if each["is"] == "struct" and _has_form(each)
    ]
    wanted: set[str] = set()
    while pending:
        name = pending.pop()
        if name in wanted or name not in known:
            continue
        wanted.add(name)
        named = [field["type"] for field in known[name]["fields"] if _json_name(field) != "-"]
        for text in (*named, known[name]["is"]):
            pending += [f"{path}.{kind}" for path, kind in _NAME.findall(text)]
    return wanted


def _has_form(kind: Fact) -> bool:
    """Return whether a struct has fields in JSON, or no fields at all and a published name, as Patch has."""
    if kind["fields"]:
        return any(_json_name(field) != "-" for field in kind["fields"])
    return "OpenAPIModelName" in (kind["methods"] or ())


def _json_name(field: Fact) -> str:
    """Return the name of a field in JSON: "." if it is inlined, "-" if it has none."""
    name = field["json"].partition(",")[0]
    if field["embedded"] and not name:
        return "."
    return str(name) or "-"


class _Writer:
    """Writes one package."""

    def __init__(
        self,
        package: Fact,
        constants: Mapping[str, str],
        values: Mapping[str, Mapping[str, Fact]],
        enums: Container[str],
    ) -> None:
        self._path: str = package["path"]
        self._package = package
        self._constants = constants
        self._values = values
        self._enums = enums

    # -- types --------------------------------------------------------------------------------------------------------

    def types(self, kinds: Iterable[Fact], release: str) -> str:
        """Return the text of the file of types."""
        parts = [
            f"# Types of {short(self._path)} in Kubernetes {release}. Written by `make kinds`; read by reading.py.\n"
        ]
        parts[0] += " ".join(self._head()) + "\n"
        parts += ["\n".join(self._type(each)) + "\n" for each in sorted(kinds, key=lambda each: str(each["name"]))]
        return "\n".join(parts)

    def _head(self) -> Iterator[str]:
        found = _GROUP_VERSION.fullmatch(self._path)
        if found is not None:
            yield f"group={self._group()}"
            yield f"version={found[2]}"
        yield f"model={self._model()}"
        yield f"source={self._package['module']}"
        if self._package["options"] and found is not None:
            yield "options"

    def _group(self) -> str:
        declared = _tags(self._package["doc"]).get("groupName")
        return str(self._package["group"] or (declared[0] if declared else ""))

    def _model(self) -> str:
        declared = _tags(self._package["doc"]).get("k8s:openapi-model-package")
        return declared[0] if declared else "io.k8s." + self._path.removeprefix("k8s.io/").replace("/", ".")

    def _type(self, kind: Fact) -> Iterator[str]:
        comments = [*kind["earlier"], *kind["doc"]]
        yield " ".join((kind["name"], self._go_type(kind["is"]), *self._type_marks(kind, _tags(comments))))
        yield from _other_tags(comments, 2)
        for field in kind["fields"]:
            name = _json_name(field)
            if name != "-":
                yield "  " + " ".join((name, *self._field(field, name, _tags(field["doc"]))))
                yield from _other_tags(field["doc"], 4)
        for value, constant in self._enum(kind).items():
            yield f"  {json.dumps(value)}"
            yield from _other_tags(constant["doc"], 4)

    def _type_marks(self, kind: Fact, tags: Mapping[str, list[str]]) -> Iterator[str]:
        answers = kind["answers"] or {}
        if kind["name"] in self._package["kinds"]:
            yield "kind"
        if "enum" in tags:
            yield "enum"
        if tags.get("protobuf.nullable") == ["true"] and kind["is"] != "struct":
            yield "message"
        for tag in ("structType", "mapType"):
            if tag in tags:
                yield f"map={tags[tag][0]}"
        if "UnmarshalJSON" in (kind["methods"] or ()):
            yield "decodes"
        if "OpenAPISchemaType" in answers:
            form = answers.get("OpenAPISchemaFormat", "")
            yield f"published={answers['OpenAPISchemaType'].replace(' ', ',')}" + (f"/{form}" if form else "")
        if "OpenAPIV3OneOfTypes" in answers:
            yield f"one-of={answers['OpenAPIV3OneOfTypes'].replace(' ', ',')}"
        for method, word in _LIVES.items():
            if found := answers.get(f"APILifecycle{method}"):
                yield f"{word}={found.replace(' ', '.')}"
        if found := answers.get("APILifecycleReplacement"):
            yield f"replacement={found.replace(' ', '/')}"

    def _field(self, field: Fact, name: str, tags: Mapping[str, list[str]]) -> Iterator[str]:
        number = field["protobuf"].split(",")[1:2]
        yield number[0] if number else "-"
        yield self._go_type(field["type"])
        options = field["json"].split(",")[1:]
        if "omitempty" in options:
            yield "?"
        if "omitzero" in options:
            yield "~"
        if _INTERNAL.fullmatch(self._path):
            yield from [f"go={field['name']}"] if field["name"] != name[:1].upper() + name[1:] else []
            return
        if name != "." and "optional" not in tags and ("required" in tags or "omitempty" not in options):
            yield "!"
        if name != "." and field["name"] != name[:1].upper() + name[1:]:
            yield f"go={field['name']}"
        if "listType" in tags:
            yield ":".join(
                (f"list={tags['listType'][0]}", *(",".join(each) for each in [tags.get("listMapKey")] if each))
            )
        for tag in ("mapType", "structType"):
            if tag in tags:
                yield f"map={tags[tag][0]}"
        if field["patch"]:
            yield f"patch={field['patch']}" + (f":{field['mergeKey']}" if field["mergeKey"] else "")
        if "default" in tags:
            yield f"default={self._default(tags['default'][0])}"

    def _default(self, text: str) -> str:
        found = re.fullmatch(r"ref\((.+)\)", text)
        if found is None:
            value = json.loads(text)
        else:
            value = self._constants[found[1] if "/" in found[1] else f"{self._path}.{found[1]}"]
        return json.dumps(value, separators=(",", ":")).replace(" ", "\\u0020")

    def _enum(self, kind: Fact) -> dict[str, Fact]:
        """Return the values of an enum, sorted."""
        if kind["is"] != "string" or not {"enum", "k8s:enum"} & _tags(kind["doc"]).keys():
            return {}
        return dict(sorted(self._values.get(f"{self._path}.{kind['name']}", {}).items()))

    def _go_type(self, text: str) -> str:
        """Return a Go type with the names of packages in api/kinds, none for types of the package itself."""

        def name(found: re.Match[str]) -> str:
            return found[2] if found[1] == self._path else f"{short(found[1])}.{found[2]}"

        return _NAME.sub(name, text).replace(" ", "")

    # -- descriptions -------------------------------------------------------------------------------------------------

    def descriptions(self, kinds: Iterable[Fact], release: str) -> str:
        """Return the file of descriptions: in each line a name, a blank, and the description with escapes."""
        lines = [f"# Descriptions of {short(self._path)} in Kubernetes {release}. Written by `make kinds`."]
        for kind in sorted(kinds, key=lambda each: str(each["name"])):
            described = [(kind["name"], description(kind["doc"]))]
            described += [
                (
                    f"{kind['name']}.{_json_name(field)}",
                    description(field["doc"], listed=field["type"].lstrip("*") in self._enums),
                )
                for field in kind["fields"]
                if _json_name(field) not in ("-", ".")
            ]
            described += [
                (f"{kind['name']}.{json.dumps(value)}", _value_text(constant))
                for value, constant in self._enum(kind).items()
            ]
            lines += [f"{name} {_escaped(text)}" for name, text in described if text]
        return "\n".join(lines) + "\n"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r")


def _value_text(constant: Fact) -> str:
    """Return the description of an enum's value (kube-openapi ``enumValue.Description``)."""
    text = " ".join(constant["doc"]).strip().removeprefix(constant["name"])
    return re.sub(r"\s+", " ", text).strip()


def description(lines: Iterable[str], *, listed: bool = False) -> str:
    """Return the published description of a comment.

    ``listed``: the values of an enum follow, so that a blank line at the end makes one more.
    """
    made = ""
    for line in lines:
        if line == "---":
            break
        line = line.rstrip(" ")
        leading = line.lstrip(" ")
        if not line:
            made = made[:-1] + "\n\n"
        elif leading.startswith(("TODO", "+")):
            continue
        elif line.startswith((" ", "\t")):
            made = made[:-1] + f"\n{line}\n"
        else:
            made += f"{line} "
    return made.strip() + ("\n" if listed and made.endswith("\n\n") else "")


def _tags(lines: Iterable[str]) -> dict[str, list[str]]:
    """Return name -> values of the tags in comments: of ``+listType=map``, listType and map."""
    made: dict[str, list[str]] = {}
    for name, value in _all_tags(lines):
        made.setdefault(name, []).append(value.removeprefix("="))
    return made


def _all_tags(lines: Iterable[str]) -> Iterator[tuple[str, str]]:
    for line in lines:
        found = _TAG.fullmatch(line.strip())
        if found is not None:
            yield found[1], found[2]


def _other_tags(lines: Iterable[str], indent: int) -> Iterator[str]:
    """Yield a line for each tag that has no place in the line of its type or field, in their order."""
    for name, value in _all_tags(lines):
        if name not in _SAID and not name.startswith(_OF_GENERATORS):
            yield f"{'':{indent}}+{name}{value}"
