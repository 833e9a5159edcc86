"""Turns keyword arguments into the flags of the `fullpipe` program.

The options of a call are a `TypedDict` whose keys are the flags' names, with `_` for `-`. The second part of
an option's `Annotated` type is the function that writes its value.
"""

import inspect
import math
import os
from collections.abc import Callable, Mapping, Sequence
from operator import index
from typing import Annotated, Any, get_args, get_type_hints

from fullpipe.errors import UsageError
from fullpipe.units import format_rate, format_size, format_time


def _number(value: Any, what: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value < 0:
        raise UsageError(
            f"{value!r} is not a {what}; give text with a unit, or a number that is not negative"
        )
    return value


def _rate(value: Any) -> str:
    return value if isinstance(value, str) else format_rate(round(_number(value, "rate in bit/s")))


def _size(value: Any) -> str:
    return value if isinstance(value, str) else format_size(round(_number(value, "size in bytes")))


def _time(value: Any) -> str:
    return value if isinstance(value, str) else format_time(round(1e9 * _number(value, "time in s")))


def _fraction(value: Any) -> str:
    return value if isinstance(value, str) else repr(_number(value, "fraction"))


def _integer(value: Any) -> str:
    if isinstance(value, str):
        return value
    # Integers of other packages, such as NumPy, have an index.
    number = None if isinstance(value, bool) or not hasattr(value, "__index__") else index(value)
    if number is None or number < 0:
        raise UsageError(f"{value!r} is not a whole number; give one that is not negative")
    return str(number)


def _file(value: Any) -> str:
    return os.fsdecode(value)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise UsageError(f"{value!r} is not text")
    return value


def _each(value: Any) -> list[str]:
    return [value] if isinstance(value, str) else [_text(one) for one in value]


def _list(value: Any) -> str:
    return str(value) if isinstance(value, str | int) else ",".join(map(str, value))


def _switch(value: Any) -> bool:
    if not isinstance(value, bool):
        raise UsageError(f"{value!r} is neither True nor False")
    return value


class _Form:
    """How the values of an option are written."""

    def __init__(self, name: str, write: Callable[[Any], str | list[str] | bool]) -> None:
        """Takes the function that writes a value: as text, as several texts, or whether the flag is given."""
        self.name = name
        self.write = write

    def __repr__(self) -> str:
        """The name: signatures and the documentation show it."""
        return self.name


Rate = Annotated[str | float | None, _Form("Rate", _rate)]
"""A rate as the program takes it, such as `9.9gbit`, or a number in bit/s."""
Size = Annotated[str | float | None, _Form("Size", _size)]
"""A size as the program takes it, such as `256MB`, or a number of bytes."""
Time = Annotated[str | float | None, _Form("Time", _time)]
"""A time as the program takes it, such as `45.6ms`, or a number of seconds."""
Fraction = Annotated[str | float | None, _Form("Fraction", _fraction)]
"""A probability or another fraction, such as `1e-5`, `0.001%` or a number from 0 to 1."""
Integer = Annotated[int | None, _Form("Integer", _integer)]
"""A whole number that is not negative."""
File = Annotated[str | os.PathLike[str] | None, _Form("File", _file)]
"""The name of a file or folder."""
Text = Annotated[str | None, _Form("Text", _text)]
"""A word as the program takes it."""
Texts = Annotated[str | Sequence[str] | None, _Form("Texts", _each)]
"""A word, or several."""
Words = Annotated[str | int | Sequence[str | int] | None, _Form("Words", _list)]
"""A word or number, or several, which the program takes as a list with commas."""
Switch = Annotated[bool, _Form("Switch", _switch)]
"""Whether a flag without a value is given."""


def signature(function: Callable[..., Any], options: type) -> inspect.Signature:
    """The signature of a function whose `**options` are a `TypedDict`, with each option as a parameter.

    Notebooks complete the names of parameters from it.
    """
    found = inspect.signature(function)
    own = [one for one in found.parameters.values() if one.kind is not inspect.Parameter.VAR_KEYWORD]
    hints = get_type_hints(options, include_extras=True)
    return found.replace(
        parameters=[
            *own,
            *(
                inspect.Parameter(
                    name,
                    inspect.Parameter.KEYWORD_ONLY,
                    default=False if hint == Switch else None,
                    annotation=get_args(hint)[0],
                )
                for name, hint in hints.items()
            ),
        ]
    )


def _checked(call: str, given: Sequence[str]) -> list[str]:
    if isinstance(given, str):
        raise UsageError(
            f"{call}: flags: {given!r} is text; give a list with one word an item, as in ['--steady']"
        )
    words = list(given)
    for word in words:
        if not isinstance(word, str) or word == "--":
            raise UsageError(f"{call}: flags: {word!r} is neither a flag nor a value of one; leave it out")
    return words


def flags_of(call: str, given: Mapping[str, object], options: type, further: Sequence[str] = ()) -> list[str]:
    """The flags of a call, in the order of its options' definition, and then the further ones.

    Args:
        call: The name of the called function, for errors.
        given: The keyword arguments. None and False stand for a flag that is not given.
        options: The `TypedDict` of the call.
        further: Flags that the caller writes as on the command line.

    Raises:
        TypeError: There is no such option.
        UsageError: A value is of the wrong type, or the further flags are one text instead of a list, or
            contain `--`, which would end the flags.
    """
    hints = get_type_hints(options, include_extras=True)
    for name in given:
        if name not in hints:
            raise TypeError(
                f"{call}() got an unexpected keyword argument '{name}'; other flags go into flags=[...]"
            )
    words: list[str] = []
    for name, hint in hints.items():
        value = given.get(name)
        if value is None:
            continue
        flag = "--" + name.replace("_", "-")
        try:
            written = get_args(hint)[1].write(value)
        except (TypeError, UsageError) as error:
            raise UsageError(f"{call}: {name}: {error}") from None
        if isinstance(written, bool):
            words += [flag] * written
        else:
            # In one word, so that a value may begin with a dash.
            words += [f"{flag}={one}" for one in ([written] if isinstance(written, str) else written)]
    return words + _checked(call, further)


def path_word(call: str, path: object) -> str:
    """A source or destination as the program reads it.

    Text is taken as on the command line, where `host:x` is another host's and `-` standard input. An
    `os.PathLike` is always a local name: the program gets it as `./host:x` and `./-`.

    Raises:
        UsageError: It is neither text nor a path.
    """
    if isinstance(path, str):
        return path
    if not isinstance(path, os.PathLike):
        raise UsageError(f"{call}: {path!r} is neither text nor a path")
    name = os.fsdecode(path)
    return name if name.startswith("/") else f"./{name}"
