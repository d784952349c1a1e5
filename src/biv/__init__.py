"""Regression when every training label comes with its own error bar.

The names are listed in `__init__.pyi`, and each is loaded when it is first used: `import biv` alone
loads neither PyTorch nor scikit-learn.
"""

import lazy_loader

__version__ = "0.1.0"

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
