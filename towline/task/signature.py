"""Read a task's signature and carry its arguments and result as JSON text by it.

How one value becomes JSON, and whether it comes back the same, is left to `payload`.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any, Final

import msgspec
from msgspec.structs import astuple

from ..errors import InvalidArguments, InvalidTask, OutputError, PayloadTooLarge
from . import Next
from .injection import check_blockers, context_parameter, output_parameters
from .payload import Refused, Value, decoder, encode, members, type_text, unportable, where
from .retry import Signal
from .secrets import Secrets, secrets_of
from .spelling import spelt, spelt_types

# Arguments are stored as one object by parameter name. `*rest` and `**options` keep their
# stars as names ("*rest": [...], "**options": {...}), which no parameter can collide with.
# A default that was not given is not stored: the default of the day of the run applies.
# Decoding runs the application's own code (validators, __post_init__), which may raise anything.

_POSITIONAL: Final = (
    inspect.Parameter.POSITIONAL_ONLY,
    inspect.Parameter.POSITIONAL_OR_KEYWORD,
)


class Signature:
    """How a task's arguments and result travel as JSON."""

    def __init__(self, function: Any, *, name: str, injected: type | None = None) -> None:
        """Read the function once; raise InvalidTask for what cannot be a task."""
        function = _plain_function(function, name)
        parameters, hints = _read(function, name, injected)
        self.name = name
        self.injected: str | None = context_parameter(parameters, hints, injected, name)
        self.outputs = output_parameters(parameters, hints, self.injected, name)
        filled = {self.injected, *self.outputs}
        self._parameters = [p for p in parameters if p.name not in filled]
        self._arrange()
        # Nearly always: none has a default, and none stands behind what the worker hands in.
        self._by_position = parameters[: len(self._parameters)] == self._parameters and all(
            p.kind is p.POSITIONAL_OR_KEYWORD and p.default is p.empty for p in self._parameters
        )
        self._values = {
            _stored_name(p): _value(_stored_type(p, hints), name, f"argument '{p.name}'")
            for p in self._parameters
        }
        self._hints = hints
        self._output = _value(_output_type(hints.get("return", Any)), name, "the result")
        self._decoder = self._build_decoder()

    def check_blockers(self, after: object) -> None:
        """Raise BlockerError when `after` does not name what a parameter takes the output of."""
        check_blockers(self.name, self.outputs, after)

    @cached_property
    def secrets(self) -> Secrets:
        """What of it is not to be shown; read when something is shown."""
        return secrets_of(self._hints)

    @cached_property
    def text(self) -> str:
        """As people write it, without what the worker hands in and without secrets."""
        return spelt(self.name, self._parameters, self._hints, self.secrets.arguments)

    @cached_property
    def types(self) -> dict[str, str]:
        """The type of each argument by its stored name, and of the result as "return"."""
        stored = {_stored_name(p): _stored_type(p, self._hints) for p in self._parameters}
        stored["return"] = _output_type(self._hints.get("return", Any))
        return spelt_types(stored)

    @cached_property
    def schema(self) -> dict[str, Any]:
        """The JSON schema of the arguments, given by name; without defaults."""
        from .schema import schema_of

        return schema_of(self._decoder.type)

    def encode(self, args: Sequence[Any], kwargs: Mapping[str, Any], *, limit: int) -> str:
        """Give the arguments as JSON text.

        Raises InvalidArguments when they do not fit the signature or would not come back
        the same, PayloadTooLarge when the text has more than `limit` bytes.
        """
        given = self._bind(args, kwargs)
        values = self._values
        for stored, value in given.items():
            slot = values[stored]
            if type(value) in slot.exact:
                continue
            try:
                given[stored] = slot.ready(value)
            except Refused as problem:
                raise self._refuse(f"argument {stored!r} {problem}") from problem.__cause__
        try:
            encoded = encode(given)
        except Exception as error:
            raise self._unencodable(given) from error
        return _limited(encoded, limit, f"the arguments of {self.name} take")

    def lane_of(self, name: str | None, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """The value of the parameter that names a job's lane; None: it is outside of lanes."""
        value = self._bind(args, kwargs).get(name or "", self._defaults.get(name or ""))
        if value is not None and (isinstance(value, bool) or not isinstance(value, str | int)):
            raise InvalidTask(
                f"{self.text}: lane={name!r} is neither str nor int, but {type(value).__name__}"
            )
        return value

    def read(
        self, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Plain JSON values, as a person or a form gives them, made into what the function takes.

        Raises InvalidArguments when they do not fit.
        """
        try:
            text = encode(self._bind(args, kwargs))
        except UnicodeEncodeError as error:
            raise self._refuse(f"an argument cannot be encoded: {error}") from error
        return self.decode(text, "the arguments")

    def decode(
        self, text: str | bytes, what: str = "the stored arguments"
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Give args and kwargs to call the function with, without the injected one.

        Raises InvalidArguments when the stored arguments no longer fit the signature.
        """
        try:
            row = self._decoder.decode(text)
        except Exception as error:
            raise self._refuse(f"{what} do not fit: {error}") from error
        if self._by_position:
            return astuple(row), {}
        given = {
            stored: value
            for stored, field in self._fields.items()
            if (value := getattr(row, field)) is not msgspec.UNSET
        }
        return self.placed(given)

    def placed(self, given: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Take values by stored name; give them by place and by name, as a call has them."""
        rest = given.pop(self._rest, ()) if self._rest else ()
        extra = given.pop(self._extra, {}) if self._extra else {}
        return self._leading(given, rest), {**given, **extra}

    def encode_output(self, value: Any, *, limit: int) -> str:
        """Give the result as JSON text; raise OutputError or PayloadTooLarge."""
        output = self._output
        try:
            encoded = encode(value if type(value) in output.exact else output.ready(value))
        except Refused as problem:
            raise OutputError(f"{self.text}: the result {problem}") from problem.__cause__
        except Exception as error:
            reason = unportable(value) or f": {error}"
            raise OutputError(f"{self.text}: the result{where(reason)}") from error
        return _limited(encoded, limit, f"the result of {self.name} takes")

    def decode_output(self, text: str | bytes) -> Any:
        """Give the result typed by the return annotation; OutputError if it no longer fits."""
        try:
            return self._output.decode(text)
        except Exception as error:
            raise OutputError(f"{self.text}: the result does not fit: {error}") from error

    def _arrange(self) -> None:
        """Sort the parameters by how they may be given."""
        kinds = inspect.Parameter
        self._positional = [p.name for p in self._parameters if p.kind in _POSITIONAL]
        self._only = [p.name for p in self._parameters if p.kind is kinds.POSITIONAL_ONLY]
        self._keywords = frozenset(
            p.name
            for p in self._parameters
            if p.kind in (kinds.POSITIONAL_OR_KEYWORD, kinds.KEYWORD_ONLY)
        )
        self._defaults = {
            p.name: p.default for p in self._parameters if p.default is not kinds.empty
        }
        self._required = (frozenset(self._positional) | self._keywords) - self._defaults.keys()
        stars = {p.kind: _stored_name(p) for p in self._parameters}
        self._rest = stars.get(kinds.VAR_POSITIONAL)
        self._extra = stars.get(kinds.VAR_KEYWORD)

    def _build_decoder(self) -> msgspec.json.Decoder[Any]:
        """Give one decoder for the whole stored object."""
        self._fields = {stored: f"p{i}" for i, stored in enumerate(self._values)}
        fields: list[Any] = [
            (field, self._values[stored].type)
            if stored in self._required
            else (field, self._values[stored].type, msgspec.field(default=msgspec.UNSET))
            for stored, field in self._fields.items()
        ]
        row = msgspec.defstruct(
            "Arguments",
            fields,
            rename={field: stored for stored, field in self._fields.items()},
            forbid_unknown_fields=True,
            kw_only=True,
        )
        return decoder(row)

    def _bind(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Give what was handed in by stored name, as Python would bind it."""
        positional = self._positional
        given: dict[str, Any] = dict(zip(positional, args, strict=False))
        if len(args) > len(positional):
            if self._rest is None:
                raise self._refuse(_too_many(len(positional), len(args)))
            given[self._rest] = list(args[len(positional) :])
        extra = {}
        for name, value in kwargs.items():
            if name not in self._keywords:
                self._check_extra(name)
                extra[name] = value
            elif name in given:
                raise self._refuse(f"argument {name!r} was given twice")
            else:
                given[name] = value
        if extra and self._extra:
            given[self._extra] = extra
        if not given.keys() >= self._required:
            raise self._refuse(self._missing(given))
        return given

    def _missing(self, given: Mapping[str, Any]) -> str:
        missing = self._required - given.keys()
        absent = [repr(p.name) for p in self._parameters if p.name in missing]
        what, verb = ("arguments", "are") if len(absent) > 1 else ("argument", "is")
        return f"{what} {', '.join(absent)} {verb} missing"

    def _check_extra(self, name: str) -> None:
        if name == self.injected:
            raise self._refuse(f"argument {name!r} is handed in by the worker; leave it out")
        if self._extra is None:
            only = name in self._only
            raise self._refuse(
                f"argument {name!r} is positional only" if only else f"unknown argument {name!r}"
            )

    def _leading(self, given: dict[str, Any], rest: Sequence[Any]) -> tuple[Any, ...]:
        """Take out of `given` what must be passed by position, with defaults in the gaps."""
        names = self._positional if rest else self._only
        last = max((i for i, name in enumerate(names) if name in given), default=-1)
        lead = names if rest else names[: last + 1]
        return (*(given.pop(n) if n in given else self._defaults[n] for n in lead), *rest)

    def _refuse(self, reason: str) -> InvalidArguments:
        return InvalidArguments(f"{self.text}: {reason}")

    def _unencodable(self, given: Mapping[str, Any]) -> InvalidArguments:
        """Find the argument that the encoder refused."""
        for stored, value in given.items():
            try:
                encode(value)
            except Exception as error:
                reason = unportable(value) or f": {error}"
                return self._refuse(f"argument {stored!r} ({type(value).__name__}){where(reason)}")
        return self._refuse("an argument's name cannot be encoded")


def encode_plain(value: Any, *, limit: int, what: str = "the output") -> str:
    """Give a value whose task is unknown here as JSON text; plain JSON values only."""
    try:
        encoded = encode(Value(Any).ready(value))
    except Refused as problem:
        raise OutputError(f"{what} {problem}") from problem.__cause__
    return _limited(encoded, limit, f"{what} takes")


def convert(text: str | bytes, type: Any) -> Any:
    """Decode JSON text to any type; OutputError if it does not fit or is not supported."""
    try:
        return Value(_output_type(type)).decode(text)
    except Exception as error:
        raise OutputError(f"{type_text(type)}: the stored value does not fit: {error}") from error


def _value(annotation: Any, task: str, place: str) -> Value:
    try:
        return Value(annotation)
    except NameError as error:
        raise _unresolved(task, error) from error
    except Exception as error:
        raise InvalidTask(
            f"{task}: {place} is annotated {type_text(annotation)}, "
            f"which cannot be stored as JSON: {error}"
        ) from error


def _too_many(most: int, given: int) -> str:
    allowed = f"at most {most}" if most else "no"
    plural, verb = ("" if most == 1 else "s"), ("was" if given == 1 else "were")
    return f"takes {allowed} positional argument{plural}, {given} {verb} given"


# What the function says


def _plain_function(function: Any, name: str) -> Callable[..., Any]:
    if isinstance(function, staticmethod):
        function = function.__func__
    if not inspect.isfunction(function):
        raise InvalidTask(
            f"{name}: a task is a plain function or a staticmethod, not {type(function).__name__}"
        )
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise InvalidTask(f"{name}: a task returns its result once, it cannot yield")
    return typing.cast("Callable[..., Any]", function)


def _read(
    function: Callable[..., Any], name: str, injected: type | None
) -> tuple[list[inspect.Parameter], dict[str, Any]]:
    """Give parameters and annotations; the injected type may be imported for type checkers only."""
    known = {} if injected is None else {injected.__name__: injected}
    scope = {**known, **getattr(inspect.unwrap(function), "__globals__", {})}
    try:
        hints = typing.get_type_hints(function, globalns=scope, include_extras=True)
        return list(inspect.signature(function).parameters.values()), hints
    except NameError as error:
        raise _unresolved(name, error) from error
    except Exception as error:
        raise InvalidTask(f"{name}: its annotations cannot be read: {error}") from error


def _unresolved(task: str, error: NameError) -> InvalidTask:
    return InvalidTask(
        f"{task}: the name {error.name!r} in its annotations is not known at run time; "
        "import it outside `if TYPE_CHECKING`"
    )


def _stored_name(parameter: inspect.Parameter) -> str:
    if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
        return f"*{parameter.name}"
    if parameter.kind is inspect.Parameter.VAR_KEYWORD:
        return f"**{parameter.name}"
    return parameter.name


def _stored_type(parameter: inspect.Parameter, hints: Mapping[str, Any]) -> Any:
    hint = hints.get(parameter.name, Any)
    if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
        return list[hint]  # type: ignore[valid-type]
    if parameter.kind is inspect.Parameter.VAR_KEYWORD:
        unpacked = typing.get_origin(hint) is typing.Unpack
        return typing.get_args(hint)[0] if unpacked else dict[str, hint]  # type: ignore[valid-type]
    return hint


def _output_type(annotation: Any) -> Any:
    """Give the type of the value in the end: `int | Next[int] | Retry` means int."""
    if annotation in (None, type(None), typing.Never, typing.NoReturn):
        return Any
    all_of = list(members(annotation))
    values = [m for m in all_of if not (isinstance(m, type) and issubclass(m, Signal))]
    wanted = [_continued(member) for member in values]
    if wanted == all_of:
        return annotation
    return typing.Union[tuple(wanted)] if wanted else Any  # noqa: UP007


def _continued(annotation: Any) -> Any:
    if (typing.get_origin(annotation) or annotation) is not Next:
        return annotation
    return typing.get_args(annotation)[0] if typing.get_args(annotation) else Any


def _limited(encoded: bytes, limit: int, what: str) -> str:
    if len(encoded) > limit:
        raise PayloadTooLarge(
            f"{what} {len(encoded):,} bytes; the limit is {limit:,} bytes: store it elsewhere and "
            "pass where it is, or raise Towline(payload_limit=…)"
        )
    return encoded.decode()
