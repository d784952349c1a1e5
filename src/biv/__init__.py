"""Regression when every training label comes with its own error bar.

The public names are listed in `__init__.pyi`. Each is loaded when it is first used, so that
`import biv` alone loads neither PyTorch nor scikit-learn.
"""

import importlib.util

from biv._utils.lazy_names import attach

__version__ = "0.1.0"

__getattr__, _names = attach(__name__, __file__)

# BIVRegressor needs scikit-learn. Without it, `from biv import *` and `help(biv)` still work.
_missing = set() if importlib.util.find_spec("sklearn") else {"BIVRegressor"}
__all__ = sorted(set(_names) - _missing)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
