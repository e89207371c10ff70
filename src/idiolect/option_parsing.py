"""Reads ``name(key=value, ...)`` and checks the options against a function's signature.

Methods, parts, models, partitions and datasets are all written this way.  The text is parsed and never evaluated; a
function's parameters are the options, with their kinds and defaults.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from inspect import Parameter
from typing import Any

from idiolect.errors import UserError, near_names, unknown_name

__all__ = [
    "OptionSchema",
    "is_of_kind",
    "literal_or_text",
    "parse_call",
    "read_choice",
    "split_outside_brackets",
    "with_options",
    "write_call",
]

NAME = r"[^\W\d]\w*(?:-\w+)*"  # an identifier, or several joined by hyphens: fashion-mnist
NOT_FINITE = ("inf", "infinity", "nan")


# Text -> name and options, and back


def parse_call(text: str) -> tuple[str, dict[str, Any]]:
    """Splits ``name`` or ``name(key=value, ...)`` into the name and its options.

    A value is a Python literal (number, string, True, None, tuple, list, ...); a bare word is read as a string.

    >>> parse_call("label_k(k=2)")
    ('label_k', {'k': 2})
    >>> parse_call("inherited_model(transfer=kd, weight=-0.5)")
    ('inherited_model', {'transfer': 'kd', 'weight': -0.5})
    >>> parse_call("fashion-mnist")
    ('fashion-mnist', {})
    """
    if not isinstance(text, str):
        raise UserError(f"{text!r} is not text; write name or name(key=value, ...)")
    found = re.fullmatch(rf"\s*({NAME})\s*(\(.*\))?\s*", text, re.DOTALL)
    if found is None and re.fullmatch(r"\s*[^\W\d]\w*(?:[ .-]+\w+)+\s*", text):
        return text.strip(), {}  # no name that anything has; whoever looks it up says what is near
    if found is None:
        raise _unreadable(text)
    name, brackets = found.groups()
    return name, _options(text, name, brackets) if brackets else {}


def _options(text: str, name: str, brackets: str) -> dict[str, Any]:
    try:
        node = ast.parse("call" + brackets, mode="eval").body
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        raise _unreadable(text) from None
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name)):
        raise _unreadable(text)
    if node.args or any(keyword.arg is None for keyword in node.keywords):
        raise UserError(f"{text!r} has an option without a name; write {name}(key=value, ...)")
    options: dict[str, Any] = {}
    for keyword in node.keywords:
        option = str(keyword.arg)
        if option in options:
            raise UserError(f"{text!r} gives {option} twice; give it once")
        options[option] = _value(text, option, keyword.value)
    return options


def _value(text: str, option: str, node: ast.expr) -> Any:
    """Returns a literal's value, or a bare word itself."""
    if isinstance(node, ast.Name):
        return node.id
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        raise UserError(
            f"{text!r} gives {option} a value that cannot be read; write a number, a word, a quoted string, "
            "a tuple or a list"
        ) from None


def literal_or_text(text: str) -> Any:
    """Returns the value of a Python literal, or the text itself: a word, or a call such as ``label_k(k=2)``.

    ``true`` and ``false`` are read as in a config file.

    >>> literal_or_text("0.5"), literal_or_text(" kd "), literal_or_text("(1, 2)"), literal_or_text("true")
    (0.5, 'kd', (1, 2), True)
    """
    words = {"true": True, "false": False}
    try:
        return ast.literal_eval(text.strip())
    except (
        ValueError,
        TypeError,
        SyntaxError,
        MemoryError,
        RecursionError,
    ):  # the last two of endless nesting
        return words.get(text.strip(), text.strip())


def _unreadable(text: str) -> UserError:
    return UserError(f"cannot read {text!r}; write name or name(key=value, ...), for example label_k(k=2)")


def split_outside_brackets(text: str, separator: str) -> list[str]:
    """Splits at separators outside brackets, and strips the pieces.

    >>> split_outside_brackets("fedprox(weight=1e+0) + average()", "+")
    ['fedprox(weight=1e+0)', 'average()']
    """
    found, depth = [""], 0
    for letter in text:
        depth += (letter in "([") - (letter in ")]")
        if letter == separator and depth == 0:
            found.append("")
        else:
            found[-1] += letter
    return [piece.strip() for piece in found]


def write_call(name: str, options: Mapping[str, Any]) -> str:
    """Writes the text that ``parse_call`` reads: words bare, other values as Python writes them.

    >>> write_call("map", {"transfer": "kd", "alpha": 0.5}), write_call("fedavg", {})
    ('map(transfer=kd, alpha=0.5)', 'fedavg')
    """
    words = {key: v if isinstance(v, str) and v.isidentifier() else repr(v) for key, v in options.items()}
    inside = ", ".join(f"{key}={word}" for key, word in words.items())
    return f"{name}({inside})" if inside else name


def with_options(method: str, options: Mapping[str, Any], term: str = "") -> str:
    """Adds options to a method's text, where they replace those of the same name.

    Args:
        term: the term of a sum that the options go to; the first by default.

    >>> with_options("SuPerFed-MM(phase_one=0.4)", {"phase_one": 0.1})
    'superfed_mm(phase_one=0.1)'
    >>> with_options("fedavg + restricted_softmax()", {"alpha": 0.5}, "restricted_softmax")
    'fedavg + restricted_softmax(alpha=0.5)'
    """
    calls = [parse_call(text) for text in split_outside_brackets(method, "+")]
    terms = [(name.lower().replace("-", "_"), given) for name, given in calls]
    chosen = term or terms[0][0]
    return " + ".join(
        write_call(name, {**given, **(options if name == chosen else {})}) for name, given in terms
    )


# Options against a signature


def _known_names(defaults: Mapping[str, Any]) -> str:
    return f"known: {', '.join(defaults)}" if defaults else "it takes none"


@dataclass(frozen=True)
class OptionSchema:
    """The options that a function takes: their names, kinds and defaults.

    Args:
        subject: what an error sentence calls the function, for example ``model mlpnet``.
        parameters: the parameters of the function that are options.
        listing: words the options, with their defaults, for the sentence that refuses an unknown one.

    >>> def ditto(weight: float = 0.5, form: str = "sq_half"): ...
    >>> schema = OptionSchema.of("ditto", ditto)
    >>> schema.with_defaults({"weight": 1}), schema.beyond_defaults({"weight": 1, "form": "sq_half"})
    ({'weight': 1.0, 'form': 'sq_half'}, {'weight': 1})
    """

    subject: str
    parameters: Mapping[str, Parameter]
    listing: Callable[[Mapping[str, Any]], str] = _known_names

    @classmethod
    def of(
        cls,
        subject: str,
        function: Callable[..., Any],
        is_option: Callable[[Parameter], bool] = lambda parameter: True,
        listing: Callable[[Mapping[str, Any]], str] = _known_names,
    ) -> OptionSchema:
        """Reads a function's signature.

        Args:
            is_option: says which parameters are options; the caller fills in the others.
        """
        parameters = inspect.signature(function).parameters
        return cls(subject, {key: p for key, p in parameters.items() if is_option(p)}, listing)

    @property
    def defaults(self) -> dict[str, Any]:
        """The defaults of the options that have one."""
        return {key: p.default for key, p in self.parameters.items() if p.default is not p.empty}

    def refuse_unknown(self, given: Mapping[str, Any]) -> None:
        """Refuses an option that the function does not take."""
        for option in given:
            if option not in self.parameters:
                known = self.listing({key: p.default for key, p in self.parameters.items()})
                near = near_names(option, self.parameters)
                hint = f"; did you mean {' or '.join(near)}?" if near else ""
                raise UserError(f"{self.subject} has no option {option!r}; {known}{hint}")

    def refuse_wrong_kinds(self, given: Mapping[str, Any]) -> None:
        """Refuses a value of another kind than the signature's annotation states."""
        for option, value in given.items():
            if not self.fits(option, value):
                kind = _written(self.parameters[option])
                finite = (
                    "a finite " if "float" in kind and str(value).lstrip("+-").lower() in NOT_FINITE else ""
                )
                raise UserError(f"{self.subject}: option {option} must be {finite}{kind}, got {value!r}")

    def fits(self, option: str, value: Any) -> bool:
        """Whether a value is of the kind that the option's annotation states."""
        return is_of_kind(value, _written(self.parameters[option]))

    def with_defaults(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Returns all options, those given and the defaults of the others, as plain values that JSON can hold.

        Two ways to write the same options give the same values.
        """
        whole = {**self.defaults, **given}
        return {key: _plain(value, self.parameters.get(key)) for key, value in whole.items()}

    def beyond_defaults(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the given options whose values are not the defaults."""
        return {
            key: value
            for key, value in given.items()
            if (p := self.parameters.get(key)) is None or _plain(value, p) != _plain(p.default, p)
        }


def read_choice(
    kind: str,
    text: str,
    functions: Mapping[str, Callable[..., Any]],
    is_option: Callable[[Parameter], bool] = lambda parameter: True,
) -> tuple[str, dict[str, Any], OptionSchema]:
    """Reads which of several functions a text chooses; returns its name, the given options and all that it takes.

    Args:
        kind: what an error sentence calls the functions, for example ``optimiser``.
        is_option: as in ``OptionSchema.of``.

    >>> def adam(epsilon: float = 1e-8): ...
    >>> read_choice("optimiser", "adam(epsilon=1)", {"adam": adam})[:2]
    ('adam', {'epsilon': 1})
    """
    name, given = parse_call(text)
    if name not in functions:
        raise unknown_name(kind, name, functions)
    schema = OptionSchema.of(f"{kind} {name}", functions[name], is_option)
    schema.refuse_unknown(given)
    schema.refuse_wrong_kinds(given)
    return name, given, schema


def is_of_kind(value: Any, kind: str) -> bool:
    """Whether a value is of a kind as an annotation writes it; a kind that is not listed here takes any value.

    >>> is_of_kind(1, "float"), is_of_kind(True, "int"), is_of_kind(None, "float | None")
    (True, False, True)
    """
    fits = {
        "int": isinstance(value, int) and not isinstance(value, bool),
        "float": _is_number(value),
        "str": isinstance(value, str),
        "None": value is None,
        "bool": isinstance(value, bool),
        "tuple[str, ...]": isinstance(value, str)
        or (isinstance(value, tuple | list) and all(isinstance(each, str) for each in value)),
        "tuple[float, ...]": isinstance(value, tuple | list) and all(_is_number(each) for each in value),
    }
    return any(fits.get(one, True) for one in re.split(r"\s*\|\s*", kind))


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _written(parameter: Parameter) -> str:
    annotation = parameter.annotation
    return annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)


def _plain(value: Any, parameter: Parameter | None) -> Any:
    """Returns a value as JSON holds it; a whole number becomes a float where the option takes fractions."""
    if isinstance(value, tuple | list):
        return [_plain(each, parameter) for each in value]
    if isinstance(value, dict):
        return {str(key): _plain(each, None) for key, each in value.items()}
    if isinstance(value, int) and not isinstance(value, bool):
        return float(value) if parameter and _takes_fractions(parameter) else value
    if value is None or isinstance(value, bool | float | str):
        return value
    return f"{value.__module__}.{value.__qualname__}" if hasattr(value, "__qualname__") else repr(value)


def _takes_fractions(parameter: Parameter) -> bool:
    if parameter.annotation is parameter.empty:
        return isinstance(parameter.default, float)
    kind = _written(parameter)
    return "float" in kind and "int" not in kind
