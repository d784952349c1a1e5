"""Public names of a package that are loaded when they are first used."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import lazy_loader


def attach(package: str, path: str) -> tuple[Callable[[str], Any], list[str]]:
    """Return the `__getattr__` of a package and its public names, read from its stub.

    Parameters
    ----------
    package : str
        Name of the package.
    path : str
        Path of its `__init__.py`; the stub is the `__init__.pyi` in the same folder.
    """
    load, _, names = lazy_loader.attach_stub(package, path)

    def get(name: str) -> Any:
        if name not in names:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return load(name)

    return get, names
