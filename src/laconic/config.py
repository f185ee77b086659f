"""Settings from TOML files and results from JSON files, validated with a line for each problem.

Each owner keeps its own settings: a class derived from ``Settings``, with a docstring under every
field. ::

    class Train(Settings):
        steps: int = Field(1000, ge=1)
        '''Steps to train.'''

    run = load("run.toml", Run, overrides=("train.steps=100",))

    run.toml: train.stpes: no such setting; did you mean 'steps'? (known: steps)

Files of results are read by the same rules: ``read_json``.
"""

from __future__ import annotations

import difflib
import json
import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, ClassVar, Literal, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from laconic.errors import ConfigError, FormatError
from laconic.files import finite

__all__ = [
    "Bytes",
    "Count",
    "Maybe",
    "Settings",
    "Text",
    "explained",
    "load",
    "parse",
    "parse_json",
    "read_json",
    "toml_string",
]

Text = Annotated[str, Field(min_length=1)]
Count = Annotated[int, Field(ge=0)]
Bytes = Annotated[float, Field(ge=0)]
Maybe = Annotated[float | None, BeforeValidator(finite)]
"""A figure that may not be defined: NaN and infinities, which JSON does not have, become None."""


class Settings(BaseModel):
    """A group of settings or of results: immutable, and it refuses names that do not exist."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", use_attribute_docstrings=True, allow_inf_nan=False, validate_default=True
    )

    moved: ClassVar[Mapping[str, str]] = {}
    """What to say of each setting that there was once, by its dotted name."""


Model = TypeVar("Model", bound=BaseModel)

_MOST_SHOWN = 80
"""Characters of a wrong value that an error shows."""


def load(path: str | Path, model: type[Model], overrides: Sequence[str] = ()) -> Model:
    """Read a TOML file into a model; ``overrides`` are ``dotted.name=value`` and win over the file.

    A value of an override is TOML where it parses as such, else a string. Raises ConfigError.
    """
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ConfigError(f"{path}: no such file") from None
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: expected UTF-8 text, got byte {error.object[error.start]:#04x}") from None
    return parse(text, model, overrides, where=str(path))


def parse(text: str, model: type[Model], overrides: Sequence[str] = (), *, where: str = "settings") -> Model:
    """Turn TOML text into a model; ``where`` begins every line of an error."""
    try:
        tree = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{where}: {_syntax(str(error))}") from None
    overridden = [_override(tree, override) for override in overrides]
    return _validated(tree, model, where, overridden)


def parse_json(
    text: str,
    model: type[Model],
    *,
    where: str = "settings",
    translate: Callable[[dict[str, Any]], dict[str, Any]] = dict,
) -> Model:
    """Turn JSON text, as ``model_dump`` gives it, into a model.

    ``translate`` makes a tree of today of one that was written before.
    """
    try:
        tree = json.loads(text)
    except ValueError as error:
        raise ConfigError(f"{where}: expected JSON, got {error}") from None
    return _validated(translate(tree) if isinstance(tree, dict) else tree, model, where, [])


def read_json(path: str | Path, model: type[Model]) -> Model:
    """Read a file of results; ``FormatError`` has a line for each field that is wrong."""
    try:
        return model.model_validate_json(Path(path).read_bytes())
    except ValidationError as error:
        raise FormatError(explained(error, model, str(path), noun="field")) from None


def explained(
    error: ValidationError,
    model: type[BaseModel],
    where: str,
    *,
    noun: str = "setting",
    overridden: Sequence[tuple[str, ...]] = (),
) -> str:
    """Write what pydantic found wrong, a line for each problem that begins with its place."""
    lines = []
    for problem in _independent(error.errors()):
        names, what = _explain(problem, model, noun)
        parts = (_source(names, where, overridden), ".".join(names), what)
        lines.append(": ".join(part for part in parts if part))
    return "\n".join(lines)


def _source(names: Sequence[str], where: str, overridden: Sequence[tuple[str, ...]]) -> str:
    """Return where a setting was given: in the file, or by ``--set``."""
    return "--set" if any(tuple(names[: len(keys)]) == keys for keys in overridden) else where


def _has(tree: Any, names: Sequence[str]) -> bool:
    """Whether a tree has a value of this name, at any depth."""
    for name in names:
        if not isinstance(tree, dict) or name not in tree:
            return False
        tree = tree[name]
    return True


def toml_string(text: str) -> str:
    """Quote as TOML does: as JSON, but that DEL is a control character."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _validated(tree: Any, model: type[Model], where: str, overridden: list[tuple[str, ...]]) -> Model:
    if issubclass(model, Settings):
        moved = {name: what for name, what in model.moved.items() if _has(tree, name.split("."))}
        if moved:
            lines = [
                f"{_source(name.split('.'), where, overridden)}: {name}: {what}"
                for name, what in moved.items()
            ]
            raise ConfigError("\n".join(lines))
    try:
        return model.model_validate(tree)
    except ValidationError as error:
        raise ConfigError(explained(error, model, where, overridden=overridden)) from None


def _independent(problems: list[ErrorDetails]) -> list[ErrorDetails]:
    """Leave out lists that are too short only because some of their items are refused."""

    def follows(problem: ErrorDetails) -> bool:
        place = problem["loc"]
        return problem["type"] == "too_short" and any(
            other is not problem and other["loc"][: len(place)] == place for other in problems
        )

    return [problem for problem in problems if not follows(problem)]


def _syntax(message: str) -> str:
    found = re.fullmatch(r"(.*) \(at (.*)\)", message, re.DOTALL)
    what, place = found.groups() if found else (message, "")
    return f"{place}: {what[:1].lower()}{what[1:]}".removeprefix(": ")


def _override(tree: dict[str, Any], override: str) -> tuple[str, ...]:
    name, equals, value = override.partition("=")
    keys = tuple(part.strip() for part in name.split("."))
    if not equals or not all(keys):
        raise ConfigError(f"--set: expected name.of.setting=value, got {override!r}")
    for depth, key in enumerate(keys[:-1], start=1):
        tree = tree.setdefault(key, {})
        if not isinstance(tree, dict):
            raise ConfigError(
                f"--set: {'.'.join(keys[:depth])}: is a value, not a group of settings; got {override!r}"
            )
    tree[keys[-1]] = _value(value.strip())
    return keys


def _value(text: str) -> Any:
    try:
        parsed = tomllib.loads(f"value = {text}")
    except tomllib.TOMLDecodeError:
        return text
    return parsed["value"] if len(parsed) == 1 else text


def _explain(problem: ErrorDetails, model: type[BaseModel], noun: str) -> tuple[list[str], str]:
    """Return the names that lead to the problem, and what it is."""
    names, owner, field = _place(model, problem["loc"])
    kind, context = problem["type"], problem.get("ctx", {})
    if kind == "extra_forbidden":
        what = _unknown(names[-1], owner, noun)
    elif kind == "missing":
        what = "required, but not given"
    elif kind in ("union_tag_invalid", "union_tag_not_found"):
        names.append(context["discriminator"].strip("'"))
        what = (
            f"expected {context['expected_tags']}, got {context['tag']!r}"
            if "tag" in context
            else "required, but not given"
        )
    elif kind == "too_short":
        what = f"expected at least {context['min_length']} of them, got {context['actual_length']}"
    elif kind in ("value_error", "assertion_error"):
        what = str(context["error"])
    elif kind == "json_invalid":
        what = f"not JSON: {problem['msg'].removeprefix('Invalid JSON: ')}"
    else:
        limits = _limits(field) if kind.startswith(("greater_than", "less_than")) else ""
        expected = re.sub(r"^Input should be ", "", problem["msg"])
        got = repr(problem["input"])
        got = got if len(got) <= _MOST_SHOWN else f"{got[: _MOST_SHOWN - 3]}..."
        what = f"expected {limits or expected[:1].lower() + expected[1:]}, got {got}"
    return names, what


def _unknown(name: str, owner: type[BaseModel] | None, noun: str) -> str:
    known = list(owner.model_fields) if owner else []
    close = difflib.get_close_matches(name, known, n=1)
    hint = f"; did you mean {close[0]!r}?" if close else ""
    return f"no such {noun}{hint} (known: {', '.join(known)})"


def _limits(field: FieldInfo | None) -> str:
    signs = {"gt": ">", "ge": ">=", "lt": "<", "le": "<="}
    metadata = field.metadata if field else []
    found = [f"{signs[name]} {getattr(m, name)}" for m in metadata for name in signs if hasattr(m, name)]
    return f"a value {' and '.join(found)}" if found else ""


def _place(
    model: type[BaseModel], location: tuple[int | str, ...]
) -> tuple[list[str], type[BaseModel] | None, FieldInfo | None]:
    """Follow an error's location: its names without tags of unions, the last group, the field."""
    names: list[str] = []
    here: Any = model
    owner: type[BaseModel] | None = model
    field: FieldInfo | None = None
    for part in location:
        choices = _models(here)
        tagged = [choice for choice in choices if part in _tags(choice)]
        if len(choices) > 1 and tagged:  # a tag, not a name
            owner = here = tagged[0]
            continue
        names.append(str(part))
        owner = choices[0] if choices else None
        field = owner.model_fields.get(str(part)) if owner else None
        arguments = [a for a in get_args(here) if a is not Ellipsis]
        here = field.annotation if field else arguments[-1] if arguments else None
    return names, owner, field


def _models(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    if get_origin(annotation) in (Union, UnionType):
        return [model for member in get_args(annotation) for model in _models(member)]
    if get_origin(annotation) is Annotated:
        return _models(get_args(annotation)[0])
    return []


def _tags(model: type[BaseModel]) -> set[Any]:
    literals = [f.annotation for f in model.model_fields.values() if get_origin(f.annotation) is Literal]
    return {tag for literal in literals for tag in get_args(literal)}
