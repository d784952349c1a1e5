"""The parameters of an estimator in a model file: numbers, words and truth values, and no path."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Annotated, Any, TypedDict, Union, get_args, get_type_hints

import numpy as np
from msgspec import Meta

from biv._utils import typed_json
from biv._utils.messages import shortened

STORED = (str, int, float, bool, type(None))
LOADED_INTEGER = Annotated[int, Meta(ge=-(1 << 31), lt=1 << 32)]
LOADED_WORD = Annotated[str, Meta(max_length=100)]
LOADED_SETTING = LOADED_INTEGER | LOADED_WORD | float | bool | None


def settings_to_json(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters that a file can hold, but for `checkpoint`."""
    plain = {k: v.item() if isinstance(v, np.generic) else v for k, v in parameters.items()}
    plain = {k: v for k, v in plain.items() if isinstance(v, STORED) and k != "checkpoint"}
    stored: dict[str, Any] = typed_json.to_json(plain)
    keep = parameters.get("keep", ())
    return stored | ({"keep": list(map(str, keep))} if len(keep) else {})


def settings_from_json(
    content: Any, names: Collection[str], constructor: Callable[..., None]
) -> dict[str, Any]:
    """Return the parameters that a file holds, as types of the constructor's annotations.

    What the constructor takes as a path or an object has no place in a file. An unknown setting is
    an error, because a model fitted again without it would be another.

    Args:
        content: The settings as JSON has them.
        names: All parameters of the estimator, which a subclass may have more of.
        constructor: ``BIVRegressor.__init__``.

    Raises:
        ValueError: A setting is unknown, or of another type.
    """
    bounded = {int: LOADED_INTEGER, str: LOADED_WORD}
    hints = get_type_hints(constructor)
    kinds: dict[str, Any] = {name: LOADED_SETTING for name in names if name not in hints}
    kinds["keep"] = tuple[str, ...]
    for name, hint in hints.items():
        taken = get_args(hint) or (hint,)
        plain = [kind for kind in taken if kind in STORED]
        if Path not in taken and set(plain) - {type(None)}:
            kinds[name] = Union[tuple(bounded.get(kind, kind) for kind in plain)]  # noqa: UP007
    given = typed_json.convert(content, dict[str, Any])
    if odd := sorted(set(given) - set(kinds)):
        name = shortened(odd[0])
        raise ValueError(f"settings has {name}, which is unknown: a newer biv may have written it")
    for name in given:
        if kinds[name] is bool and given[name] in (0, 1):  # such as verbose=1
            given[name] = bool(given[name])
    return dict(typed_json.convert(given, TypedDict("Settings", kinds, total=False)))  # type: ignore
