"""Carry one value as JSON by its annotation, and refuse what would not come back the same.

Encoding and typed decoding are msgspec's; this adds the check, and hooks for paths, pydantic
models and subclasses of str, int and float. Which values belong to a task says `signature`.
"""

from __future__ import annotations

import collections.abc
import dataclasses
import datetime
import functools
import inspect
import math
import pathlib
import types
import typing
from collections.abc import Sequence
from typing import Any, Final

import msgspec

type_text: Final = inspect.formatannotation

_MAX_DEPTH: Final = 100
_ANYTHING: Final = (Any, object, inspect.Parameter.empty)
# Types whose exact instances need no check. Floats are missing because NaN is one.
_ATOMS: Final = frozenset({int, bool, str, type(None)})
# Annotations that promise less than the list they come back as, so a tuple may be given.
_ABSTRACT_LISTS: Final = (
    collections.abc.Sequence,
    collections.abc.Collection,
    collections.abc.Iterable,
)


class Refused(Exception):
    """A value that would not come back the same; the text continues "argument 'a' "."""


class Value:
    """One annotated place: a parameter or the result."""

    def __init__(self, annotation: Any) -> None:
        self.expected = type_text(annotation)
        self.plain = annotation in _ANYTHING
        self.number = annotation is float
        self.abstract = _is_abstract(annotation)
        self.exact = _ATOMS if self.plain else _exact(annotation)
        self.type: Any = Any if self.plain else _decoded_type(annotation)
        _check_supported(self.type)
        self.decode = decoder(self.type).decode

    def ready(self, value: Any) -> Any:
        """Give the value in a form that the encoder takes as it is."""
        if self.plain:
            if reason := _not_plain(value):
                raise Refused(f"({type(value).__name__}){where(reason)}")
            return value
        if type(value) in self.exact or (
            self.number and type(value) is float and math.isfinite(value)
        ):
            return value
        if self.abstract and isinstance(value, tuple):
            value = list(value)
        return self._round_trip(value)

    def _round_trip(self, value: Any) -> msgspec.Raw:
        try:
            encoded = encode(value)
            back = self.decode(encoded)
        except Exception as error:
            reason = unportable(value) or _explained(error)
            raise self._refused(value, reason) from error
        if reason := _difference(value, back):
            raise self._refused(value, unportable(value) or reason)
        return msgspec.Raw(encoded)

    def _refused(self, value: Any, reason: str) -> Refused:
        return Refused(f"expects {self.expected}, was given {type(value).__name__}{where(reason)}")


def members(annotation: Any) -> tuple[Any, ...]:
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        return typing.get_args(annotation)
    return (annotation,)


def _exact(annotation: Any) -> frozenset[type]:
    """Give the types whose exact instances need no check: a bool is an int, and stays a bool."""
    exact = members(annotation)
    if not all(isinstance(member, type) and member in _ATOMS for member in exact):
        return frozenset()
    return frozenset((*exact, bool) if int in exact else exact)


def _is_abstract(annotation: Any) -> bool:
    return (typing.get_origin(annotation) or annotation) in _ABSTRACT_LISTS


def _decoded_type(annotation: Any) -> Any:
    """Give the type that values of the annotation come back as."""
    if _is_abstract(annotation):
        return list[typing.get_args(annotation) or Any]  # type: ignore[misc]
    takes_bool = any(member is int for member in members(annotation))
    return typing.Union[annotation, bool] if takes_bool else annotation  # noqa: UP007


def _check_supported(annotation: Any) -> None:
    """Raise TypeError for a class inside the annotation that no hook knows."""
    seen: dict[int, object] = {}
    todo: list[object] = [msgspec.inspect.type_info(annotation)]
    while todo:
        node = todo.pop()
        if isinstance(node, (tuple, list)):
            todo.extend(typing.cast("Sequence[object]", node))
        elif isinstance(node, msgspec.inspect.CustomType):
            if not _has_hook(node.cls):
                raise TypeError(f"{type_text(node.cls)} is not a supported type")
        elif isinstance(node, (msgspec.inspect.Type, msgspec.inspect.Field)):
            if id(node) not in seen:
                seen[id(node)] = node
                todo.extend(getattr(node, name) for name in node.__struct_fields__)


# What the encoder does not know by itself


def _is_pydantic(cls: type) -> bool:
    return hasattr(cls, "__pydantic_core_schema__") and hasattr(cls, "model_validate_json")


def _has_hook(cls: type) -> bool:
    return cls is object or issubclass(cls, pathlib.PurePath) or _is_pydantic(cls)


def _to_json(value: Any) -> Any:
    if isinstance(value, pathlib.PurePath):
        return str(value)
    if _is_pydantic(type(value)):
        return value.model_dump(mode="json", by_alias=True, round_trip=True, warnings=False)
    # The methods of the bases: a subclass may have its own idea of str().
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        return int.__int__(value)
    if isinstance(value, float):
        return float.__float__(value)
    raise TypeError(f"{type(value).__name__} cannot be encoded as JSON")


def _from_json(cls: Any, value: Any) -> Any:
    if cls is object:
        return value
    if issubclass(cls, pathlib.PurePath):
        if not isinstance(value, str):
            raise ValueError(f"Expected `str`, got `{type(value).__name__}`")
        return cls(value)
    return cls.model_validate_json(encode(value))


encode: Final = msgspec.json.Encoder(enc_hook=_to_json).encode


def decoder(type: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(type, dec_hook=_from_json)


# Why a value is refused: each gives "path: reason", the path inside the value, or nothing


def where(reason: str) -> str:
    """Set the path inside the value off from what stands before it."""
    return reason if reason.startswith(":") or not reason else f", at {reason}"


def _not_plain(value: Any, depth: int = 0) -> str:
    """Say what in the value is not plain JSON."""
    kind = type(value)
    if kind in _ATOMS:
        return ""
    if kind is float:
        return "" if math.isfinite(value) else _not_finite(value)
    if depth > _MAX_DEPTH:
        return f": is nested deeper than {_MAX_DEPTH} levels"
    if kind is list:
        for i, item in enumerate(value):
            if type(item) not in _ATOMS and (reason := _not_plain(item, depth + 1)):
                return f"[{i}]{reason}"
        return ""
    if kind is dict:
        for key, item in value.items():
            if type(key) is not str:
                return f": the key {key!r} would come back as a string; annotate its type"
            if type(item) not in _ATOMS and (reason := _not_plain(item, depth + 1)):
                return f"[{key!r}]{reason}"
        return ""
    try:
        back = msgspec.json.decode(encode(value))
    except Exception:
        return f": {kind.__name__} has no form in JSON; pass what describes it, such as an id"
    return f": {kind.__name__} would come back as {type(back).__name__}; annotate its type"


def _difference(given: Any, back: Any, depth: int = 0) -> str:
    """Say where what came back is not what was given.

    An instance of a subclass of a builtin comes back as the annotated class, an int where
    a float is annotated as a float; both only if equal. A bool is no int here.
    """
    kind: Any = type(back)
    if type(given) is kind and kind in _ATOMS:
        return "" if given == back else ": would come back changed"
    names = _field_names(kind)
    exactly = names is not None or isinstance(given, bool)
    same_kind = type(given) is kind if exactly else isinstance(given, kind)
    if not same_kind and not (kind is float and type(given) is int):
        return f": {type(given).__name__} would come back as {kind.__name__}"
    if depth > _MAX_DEPTH:
        return f": is nested deeper than {_MAX_DEPTH} levels"
    if isinstance(back, (set, frozenset)):
        back = _paired(given, back)
    if back is None or (names is None and not isinstance(back, (list, tuple, dict))):
        return "" if _equal(given, back) else ": would come back changed"
    if kind is list and _all_atoms(given) and given == back:
        return ""  # equal atoms of JSON have one type, but for bools, which JSON tells apart
    ours, theirs = _children(given), _children(back)
    if len(ours) != len(theirs):
        return ": would come back with another length"
    for (key, item), (other_key, other) in zip(ours, theirs, strict=True):
        if key is not other_key and (reason := _difference(key, other_key, depth + 1)):
            return f": the key {key!r}{reason}"
        if item is not other and (reason := _difference(item, other, depth + 1)):
            return f"{_step(given, key)}{reason}"
    return ""


def _all_atoms(items: Any) -> bool:
    return _ATOMS.issuperset(map(type, items))


def _equal(given: Any, back: Any) -> bool:
    if getattr(given, "fold", 0) and getattr(given, "tzinfo", None) is None:
        return False
    try:
        return bool(_in_utc(given) == _in_utc(back))
    except Exception:
        return False


def _in_utc(value: Any) -> Any:
    """Give what is equal for a value and the same value with its times in another zone.

    Times in the hour that is repeated in autumn never equal those of another zone by themselves.
    """
    if isinstance(value, datetime.datetime) and value.tzinfo is not None:
        return value.astimezone(datetime.UTC)
    if isinstance(value, frozenset):
        return frozenset(map(_in_utc, typing.cast("frozenset[object]", value)))
    inside = tuple((key, _in_utc(item)) for key, item in _children(value))
    return inside or value


def _paired(given: Any, back: Any) -> list[Any] | None:
    """Give the items of a set that came back, each in the place of the one it equals."""
    try:
        found = {_in_utc(item): item for item in back}
        return [found.pop(_in_utc(item)) for item in given]
    except Exception:  # one is missing, or has no place in the calendar of UTC
        return None


def unportable(value: Any, depth: int = 0) -> str:
    """Say where the value holds what no JSON can."""
    if isinstance(value, float) and not math.isfinite(value):
        return _not_finite(value)
    if isinstance(value, str) and any("\ud800" <= char <= "\udfff" for char in value):
        return ": a lone surrogate is not Unicode text"
    if depth > _MAX_DEPTH:
        return f": is nested deeper than {_MAX_DEPTH} levels"
    for key, item in _children(value):
        if reason := unportable(key, depth + 1):
            return f": the key {key!r}{reason}"
        if reason := unportable(item, depth + 1):
            return f"{_step(value, key)}{reason}"
    return ""


def _not_finite(value: float) -> str:
    return f": {value!r} is a float that JSON does not have"


def _explained(error: Exception) -> str:
    """Give the error where it says more than the two types."""
    text = str(error)
    types = isinstance(error, msgspec.ValidationError) and ", got `" in text and "$" not in text
    return "" if types else f": {text}"


def _children(value: Any) -> list[tuple[Any, Any]]:
    if isinstance(value, dict):
        return list(value.items())
    if isinstance(value, (list, tuple, set, frozenset)):
        return list(enumerate(value))
    cls: Any = type(value)
    fields = [(name, getattr(value, name, None)) for name in _field_names(cls) or ()]
    if _is_pydantic(cls):
        extra, private = value.__pydantic_extra__ or {}, value.__pydantic_private__ or {}
        fields += [*extra.items(), *private.items()]
    return fields


def _step(value: Any, key: Any) -> str:
    cls: Any = type(value)
    return f"[{key!r}]" if _field_names(cls) is None else f".{key}"


@functools.lru_cache(maxsize=1024)
def _field_names(cls: type) -> tuple[str, ...] | None:
    """Give the fields of a dataclass, Struct, attrs class or pydantic model."""
    if dataclasses.is_dataclass(cls):
        return tuple(field.name for field in dataclasses.fields(cls))
    if issubclass(cls, msgspec.Struct):
        return cls.__struct_fields__
    if _is_pydantic(cls):
        return tuple(typing.cast("Any", cls).model_fields)
    attributes = getattr(cls, "__attrs_attrs__", None)
    return None if attributes is None else tuple(a.name for a in attributes)
