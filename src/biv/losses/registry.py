"""Registry of losses by name, with the facts that the rest of the library needs.

:class:`biv.BIVRegressor`, ``biv train``, streaming, ``biv compare`` and the paper's experiments all
read this registry, so that a registered loss is available in all of them. Reading it does not
import PyTorch, because the class of a loss is imported when its first instance is created.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

from biv._utils.pages import argument_hint
from biv._utils.wording import Message, Setting

if TYPE_CHECKING:
    from biv.losses.modules import VarianceLoss


@dataclass(frozen=True)
class LossInfo:
    """Description of a loss, which does not import its class.

    Attributes
    ----------
    name : str
        Value of `loss` in :class:`biv.BIVRegressor` and of ``--loss`` in ``biv train``.
    title : str
        Name in tables and charts.
    module : str
        Its class, a :class:`biv.VarianceLoss`, as ``"package.module:Class"``.
    settings : tuple of str, default=()
        Arguments of that class that define the loss: "epsilon", "threshold".
    user_settings : tuple of str, default=()
        Those settings that users of the estimator and the command can choose. The others keep their
        defaults, such as ε = 0 of IV.
    uses_variance : bool, default=True
        Whether its weights depend on the variances.
    without_variance : str or None, default=None
        Name of the loss that replaces it if the labels have no error bars; None if that is an
        error.
    accepts_zero_variance : bool, default=True
        Whether it is finite at σ² = 0 with its default settings.
    """

    name: str
    title: str
    module: str
    settings: tuple[str, ...] = ()
    user_settings: tuple[str, ...] = ()
    uses_variance: bool = True
    without_variance: str | None = None
    accepts_zero_variance: bool = True

    def create(self, **arguments: Any) -> VarianceLoss:
        """Create an instance of its class."""
        module, _, name = self.module.partition(":")
        loss: VarianceLoss = getattr(import_module(module), name)(**arguments)
        return loss


_LOSSES: dict[str, LossInfo] = {}


def register(loss: LossInfo) -> None:
    """Make a loss available by its name.

    Raises
    ------
    ValueError
        If another loss has that name.
    """
    if loss.name in _LOSSES:
        raise ValueError(f"a loss named {loss.name!r} already exists")
    _LOSSES[loss.name] = loss


def unregister(name: str) -> None:
    """Remove a loss from the registry."""
    del _LOSSES[name]


def names() -> tuple[str, ...]:
    """Return the names of all losses.

    Examples
    --------
    >>> names()
    ('biv', 'l2', 'iv', 'cutoff')
    """
    return tuple(_LOSSES)


def get(name: str) -> LossInfo:
    """Return the loss with this name.

    Raises
    ------
    ValueError
        If there is no such loss.

    Examples
    --------
    >>> get("cutoff").create(threshold=2.0)
    CutoffLoss(threshold=2.0)
    """
    if name not in _LOSSES:
        known = ", ".join(map(repr, _LOSSES))
        raise ValueError(f"loss must be one of {known}; got {name!r}")
    return _LOSSES[name]


def for_labels(name: str, *, have_variances: bool) -> LossInfo:
    """Return the loss with this name, or the loss that replaces it for labels without error bars.

    Raises
    ------
    ValueError
        If the labels have no error bars and the loss needs them.

    Examples
    --------
    >>> for_labels("biv", have_variances=False).name
    'l2'
    """
    loss = get(name)
    if have_variances or not loss.uses_variance:
        return loss
    if loss.without_variance is not None:
        return get(loss.without_variance)
    raise error_bars_missing(Setting("loss", name))


def error_bars_missing(setting: Setting) -> ValueError:
    """Return the error for a setting that needs error bars."""
    return ValueError(
        Message(
            "{setting} needs {variance} or {std}; got neither{page}",
            setting=setting,
            variance=Setting("y_var"),
            std=Setting("y_std"),
            page=argument_hint("y_var"),
        )
    )


def names_with_setting(setting: str) -> str:
    """Return the names of the losses for which users can choose a setting, joined by "or".

    Examples
    --------
    >>> names_with_setting("epsilon")
    'biv'
    """
    return " or ".join(loss.name for loss in _LOSSES.values() if setting in loss.user_settings)


register(
    LossInfo(
        "biv",
        "BIV",
        "biv.losses.modules:BIVLoss",
        settings=("epsilon",),
        user_settings=("epsilon",),
        without_variance="l2",
    )
)
register(LossInfo("l2", "L2", "biv.losses.modules:L2Loss", uses_variance=False))
register(
    LossInfo(
        "iv",
        "IV",
        "biv.losses.modules:IVLoss",
        settings=("epsilon",),
        accepts_zero_variance=False,
    )
)
register(
    LossInfo(
        "cutoff",
        "Cutoff",
        "biv.losses.modules:CutoffLoss",
        settings=("threshold",),
        user_settings=("threshold",),
    )
)
