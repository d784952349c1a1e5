"""Regression when every training label comes with its own error bar.

The names are listed in `__init__.pyi`, and each is loaded when it is first used: `import biv` alone
loads neither PyTorch nor scikit-learn.
"""

import importlib.util
from typing import Any

import lazy_loader

__version__ = "0.1.0"

_load, _list_names, __all__ = lazy_loader.attach_stub(__name__, __file__)


def __getattr__(name: str) -> Any:
    """Load a public name when it is first used."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return _load(name)


def __dir__() -> list[str]:
    """Leave out what cannot be loaded here, so that `help(biv)` works without scikit-learn."""
    missing = set() if importlib.util.find_spec("sklearn") else {"BIVRegressor"}
    return sorted({*_list_names(), "__version__"} - missing)
