"""Parameters of an estimator in a model file: numbers, texts and Booleans, but no path."""

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
LOADED_TEXT = Annotated[str, Meta(max_length=100)]
LOADED_SETTING = LOADED_INTEGER | LOADED_TEXT | float | bool | None


def settings_to_json(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters that a file can hold, without `checkpoint`."""
    plain = {k: v.item() if isinstance(v, np.generic) else v for k, v in parameters.items()}
    plain = {k: v for k, v in plain.items() if isinstance(v, STORED) and k != "checkpoint"}
    stored: dict[str, Any] = typed_json.to_json(plain)
    keep = parameters.get("keep", ())
    return stored | ({"keep": list(map(str, keep))} if len(keep) else {})


def settings_from_json(
    content: Any, names: Collection[str], constructor: Callable[..., None]
) -> dict[str, Any]:
    """Return the parameters that a file holds, converted to the annotated types.

    Parameters that are paths or objects are not accepted from a file. An unknown setting is an
    error, because a new fit without it could give another model.

    Parameters
    ----------
    content : object
        Settings as read from JSON.
    names : collection of str
        All parameters of the estimator; a subclass may have more than `BIVRegressor`.
    constructor : callable
        ``BIVRegressor.__init__``.

    Returns
    -------
    dict
        Parameters by their names.

    Raises
    ------
    ValueError
        A setting is unknown or has an invalid type.
    """
    bounded = {int: LOADED_INTEGER, str: LOADED_TEXT}
    hints = get_type_hints(constructor)
    kinds: dict[str, Any] = {name: LOADED_SETTING for name in names if name not in hints}
    kinds["keep"] = tuple[str, ...]
    for name, hint in hints.items():
        options = get_args(hint) or (hint,)
        plain = [kind for kind in options if kind in STORED]
        if Path not in options and set(plain) - {type(None)}:
            kinds[name] = Union[tuple(bounded.get(kind, kind) for kind in plain)]  # noqa: UP007
    given = typed_json.convert(content, dict[str, Any])
    if unknown := sorted(set(given) - set(kinds)):
        name = shortened(unknown[0])
        raise ValueError(
            f"settings has {name}, which is unknown: a newer version of biv may have written it"
        )
    for name in given:
        if kinds[name] is bool and given[name] in (0, 1):  # as verbose=1 is stored
            given[name] = bool(given[name])
    return dict(typed_json.convert(given, TypedDict("Settings", kinds, total=False)))  # type: ignore
