"""What the classes of result files share: their kinds of fields, and reading with errors that name the field."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from laconic.errors import FormatError

__all__ = ["Bytes", "Count", "Maybe", "Record", "Text", "read_record", "what_is_wrong"]


def _null_if_nan(value: Any) -> Any:
    return None if isinstance(value, float) and math.isnan(value) else value


Text = Annotated[str, Field(min_length=1)]
Count = Annotated[int, Field(ge=0)]
Bytes = Annotated[float, Field(ge=0)]
Maybe = Annotated[float | None, BeforeValidator(_null_if_nan)]


class Record(BaseModel):
    """A part of a result file: immutable, and without room for a field that does not exist."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True, allow_inf_nan=False)


Some = TypeVar("Some", bound=Record)


def read_record(path: str | Path, kind: type[Some]) -> Some:
    """Read a file, or raise FormatError with a line for each field that is not as it should be."""
    try:
        return kind.model_validate_json(Path(path).read_bytes())
    except ValidationError as error:
        lines = [
            ": ".join(filter(None, (str(path), ".".join(map(str, problem["loc"])), what_is_wrong(problem))))
            for problem in error.errors()
        ]
        raise FormatError("\n".join(lines)) from None


def what_is_wrong(problem: Any) -> str:
    """Say in a few words what pydantic found wrong with a field."""
    kind, message = problem["type"], problem["msg"]
    if kind == "missing":
        return "required, but not given"
    if kind == "extra_forbidden":
        return "no such field"
    if kind == "value_error":
        return str(problem["ctx"]["error"])
    if kind == "json_invalid":
        return f"not JSON: {message.removeprefix('Invalid JSON: ')}"
    expected = message.replace("Input should be", "expected", 1)
    got = repr(problem["input"])
    return f"{expected[:1].lower()}{expected[1:]}, got {got if len(got) <= 80 else got[:77] + '...'}"
