"""What is known of a table in pieces before training: schema, and surveys of the row groups."""

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
    """Which columns are learned from, and how.

    Attributes:
        features: Columns to learn from; None for all that the target does not name.
        ignore: Columns to leave out.
        keep: Columns to learn from even if they look like identifiers or copies of the label.
        categories: Numeric columns to treat as categories.
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
    """Return what the columns mean: by their types where those say it, else by one more pass.

    Args:
        ranks: All processes, which call this alike.
        table: Row groups.
        target: Where the labels are.
        groups: Numbers of the row groups that this process reads.
        columns: Columns to learn from.
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
        looks = ranks.run_on_all(
            lambda: guess_columns(unclear, (table.read(group, unclear) for group in groups))
        )
        for several in zip(*ranks.gather(looks), strict=True):
            known[several[0].name] = reduce(or_, several)
    guesses = [guess or Guess(name) for name, guess in known.items()]
    kept = (*columns.keep, *(columns.features or ()))
    schema = ranks.run_on_all(lambda: Schema.from_guesses(guesses, columns.categories, kept))
    ranks.run_on_all(lambda: require_columns(schema, table.files))
    return schema


def surveys_of(
    ranks: Ranks, reader: Reader, groups: Sequence[int], *, progress: bool
) -> dict[int, Survey]:
    """Return the survey of every row group by its number; each process reads some of them."""
    shown = progress and ranks.is_first

    def look() -> dict[int, Survey]:
        found = {}
        with progress_bar(len(groups), "reading", enabled=shown, unit="row group") as bar:
            for group in groups:
                found[group] = Survey.of(reader, group)
                bar.update()
        return found

    own = ranks.run_on_all(look)
    return {group: survey for part in ranks.gather(own) for group, survey in part.items()}
