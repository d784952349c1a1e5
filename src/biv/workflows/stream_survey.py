"""Schema and surveys of the row groups of a streamed table, before training."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from operator import or_

from biv._utils.progress import progress_bar
from biv.tables import Target
from biv.tables.labelled import chosen_columns, require_columns
from biv.tables.row_groups import RowGroups
from biv.tables.schema import Guess, Schema, guess_columns
from biv.tables.survey import Reader, Survey
from biv.training.ranks import Ranks


@dataclass(frozen=True)
class ColumnChoice:
    """Choice of the feature columns.

    Attributes
    ----------
    features : sequence of str or None, default=None
        Feature columns; None for all columns that the target does not name.
    ignore : sequence of str, default=()
        Columns to leave out.
    keep : sequence of str, default=()
        Columns to use even if they look like identifiers or copies of the label.
    categories : sequence of str, default=()
        Numeric columns to treat as categories.
    """

    features: Sequence[str] | None = None
    ignore: Sequence[str] = ()
    keep: Sequence[str] = ()
    categories: Sequence[str] = ()


def agreed_schema(
    ranks: Ranks,
    table: RowGroups,
    target: Target,
    groups: Sequence[int],
    columns: ColumnChoice,
) -> Schema:
    """Return the schema of the columns, by their types; columns of unclear type are read.

    Parameters
    ----------
    ranks : Ranks
        All processes; each makes the same call.
    table : RowGroups
        Row groups of the table.
    target : Target
        Columns of the labels.
    groups : sequence of int
        Numbers of the row groups that this process reads.
    columns : ColumnChoice
        Choice of the feature columns.
    """
    names = ranks.run_on_all(
        lambda: chosen_columns(
            table.files, target, columns.features, columns.ignore, columns.keep, columns.categories
        )
    )
    known = {name: Guess.by_type(table.schema.field(name)) for name in names}
    unclear = [
        name for name, guess in known.items() if guess is None and name not in columns.categories
    ]
    if unclear:
        guesses_here = ranks.run_on_all(
            lambda: guess_columns(unclear, (table.read(group, unclear) for group in groups))
        )
        for several in zip(*ranks.gather(guesses_here), strict=True):
            known[several[0].name] = reduce(or_, several)
    guesses = [guess or Guess(name) for name, guess in known.items()]
    kept = (*columns.keep, *(columns.features or ()))
    schema = ranks.run_on_all(lambda: Schema.from_guesses(guesses, columns.categories, kept))
    ranks.run_on_all(lambda: require_columns(schema, table.files))
    return schema


def survey_row_groups(
    ranks: Ranks, reader: Reader, groups: Sequence[int], *, progress: bool
) -> dict[int, Survey]:
    """Return the survey of every row group by its number; the processes share the reading."""
    shown = progress and ranks.is_first

    def survey_groups() -> dict[int, Survey]:
        surveys = {}
        with progress_bar(len(groups), "reading", enabled=shown, unit="row group") as bar:
            for group in groups:
                surveys[group] = Survey.of(reader, group)
                bar.update()
        return surveys

    surveyed = ranks.run_on_all(survey_groups)
    return {group: survey for part in ranks.gather(surveyed) for group, survey in part.items()}
