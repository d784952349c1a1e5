"""The four losses as functions and modules, and the weights they rest on.

The names are listed in `__init__.pyi`, and each is loaded when it is first used.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
