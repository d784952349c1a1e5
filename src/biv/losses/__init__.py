"""The four losses as functions and as modules, and the weights that they use.

The public names are listed in `__init__.pyi`. Each is loaded when it is first used.
"""

from biv._utils.lazy_names import attach

__getattr__, __all__ = attach(__name__, __file__)


def __dir__() -> list[str]:
    return __all__
