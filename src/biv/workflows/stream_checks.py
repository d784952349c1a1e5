"""Checks of a streamed table before training starts."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

from biv._utils.messages import shortened
from biv._utils.warnings import warn
from biv._utils.wording import Message, Setting
from biv.losses import registry
from biv.tables import Target
from biv.tables.labelled import left_out_message
from biv.tables.row_groups import RowGroups, assign_row_groups
from biv.tables.survey import Rows, Survey
from biv.training.ranks import Ranks
from biv.workflows.checks import require_no_copies
from biv.workflows.stream_plan import StreamSettings

SHARDS = 12  # smallest number: 1, 2, 3, 4 and 6 processes share it evenly


def require_same_files(ranks: Ranks, table: RowGroups) -> None:
    """Check that processes on several machines have the same files."""
    groups = [(group.path.name, group.number, group.rows) for group in table.groups]
    digest = hashlib.sha256(repr(groups).encode()).hexdigest()
    if len(set(ranks.gather(digest))) > 1:
        raise ValueError(f"every process must have the same files; {table.files} differ")


def default_shards(processes: int, groups: int) -> int:
    """Return the number of shards of a new run; processes share them evenly if possible."""
    even = -(-SHARDS // processes) * processes
    return even if even <= groups else max(min(groups, SHARDS), processes)


def assign_shards(table: RowGroups, shards: int, processes: int) -> list[list[int]]:
    """Return the row groups of each shard.

    Raises
    ------
    ValueError
        If there are fewer shards than processes.
    """
    if shards < processes:
        raise ValueError(
            f"{processes} processes need at least as many shards; got {shards}: start fewer"
        )
    return assign_row_groups([group.rows for group in table.groups], shards)


def require_learnable_stream(
    survey: Survey,
    surveys: Mapping[int, Survey],
    groups_of_shard: Sequence[Sequence[int]],
    table: RowGroups,
    target: Target,
    settings: StreamSettings,
) -> None:
    """Check that a model can be trained on a streamed table."""
    if not survey.rows:
        raise ValueError(f"{table.files} must have rows with a {shortened(target.name)}; got none")
    for number, groups in enumerate(groups_of_shard):
        if not sum(surveys[group].training_rows for group in groups):
            paths = sorted({str(table.groups[group].path) for group in groups})
            raise ValueError(
                Message(
                    "shard {number} of {count} has no row to learn from ({paths}): every shard "
                    "must have rows with a {label}; choose fewer with {shards}",
                    number=number,
                    count=len(groups_of_shard),
                    paths=", ".join(paths[:3]),
                    label=shortened(target.name),
                    shards=Setting("shards"),
                )
            )
    if not survey.labels.count:
        names = " and ".join(map(shortened, target.error_bars))
        raise ValueError(f"{table.files}: no error bar in column {names} is known: leave it out")
    if target.error_bars and survey.labels.mean_variance == 0:
        names = " and ".join(map(shortened, target.error_bars))
        raise ValueError(
            f"{table.files}: every error bar in column {names} is 0: if the labels are without "
            "noise, leave it out"
        )
    accepted = registry.get(settings.loss).accepts_zero_variance
    if not accepted and target.error_bars and survey.labels.trusted:
        names = " and ".join(map(shortened, target.error_bars))
        raise ValueError(
            Message(
                "{files}: {count:,} error bars in column {names} are 0, to which {loss} would give "
                "an infinite weight: biv takes them",
                files=table.files,
                count=survey.labels.trusted,
                names=names,
                loss=Setting("loss", settings.loss),
            )
        )
    if sum(map(len, survey.held_out)) < 2:
        raise ValueError(
            f"{table.files} must have more rows; got {survey.rows}, and one in ten is held out to "
            "choose the epoch. Train on a small table in memory: without torchrun, and without "
            "streaming"
        )
    survey.scaler()


def require_no_leak(table: RowGroups, target: Target, held_out: Rows, keep: Sequence[str]) -> None:
    """Check on the held-out rows that intervals are right and no feature repeats the label."""
    target.require_inside(table.files, held_out.y, held_out.ends)
    require_no_copies(table.files, target, held_out.features, held_out.y, held_out.ends, keep)


def warn_about_missing(survey: Survey, target: Target) -> None:
    """Warn about rows without a label and labels without a variance."""
    if survey.unlabelled:
        warn(left_out_message(survey.unlabelled, target.name))
    if survey.unknown:
        warn(
            f"the variance of {survey.unknown:,} {'label' if survey.unknown == 1 else 'labels'} "
            f"is unknown and was set to {survey.labels.median_variance:.4g}"
        )
