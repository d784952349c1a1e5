"""`biv claims`: the paper's twenty claims, put to the test."""

from __future__ import annotations

import argparse
from typing import Any

from biv._files import write_atomically
from biv.cli import experiments
from biv.cli.parsing import add_command
from biv.experiments.artefacts import PRESETS
from biv.experiments.claims import COUNT, claims, find
from biv.report import claims as report

EXAMPLES = """examples:
  biv claims                                            all of them, on the whole of Bike Sharing
  biv claims 4 19                                       two of them, shown and not written
  biv claims --list                                     each with its runs and its time here
  biv claims --stored --out results                     from the runs that are in results, no more
  biv claims --cluster dask://10.0.0.7:8786             on a cluster; so is --cluster ray
  biv claims --dataset bike2011 --preset laptop         on shipped data, in less time

Runs are kept in OUT/runs.sqlite, shared with `biv reproduce`: what is there is not trained again.
A verdict is a paired comparison over seeds, by one rule for all.
"""


def add_to(commands: Any) -> None:
    """Add this command to the parser's."""
    parser = add_command(
        commands,
        "claims",
        call,
        brief="the paper's claims, each with a verdict, its effect, interval and seeds",
        description=__doc__,
        examples=EXAMPLES,
        page="paper/claims",
        interrupted="what was finished is stored",
    )
    parser.add_argument(
        "numbers", nargs="*", metavar="CLAIM", help="1 to 20 (default: all, written to OUT too)"
    )
    experiments.add_options(parser)


def call(options: argparse.Namespace) -> int:
    """Train what is missing, then judge from the store."""
    experiments.check(options)
    known = claims(options.dataset, PRESETS[options.preset])
    chosen = [find(number, known) for number in dict.fromkeys(options.numbers)]
    chosen = chosen or list(known.values())
    if options.list:
        things = [
            experiments.Listed(f"claim {c.number}", "", c.runs(options.seeds), c.says)
            for c in chosen
        ]
        print(experiments.listing(things, options))
        return 0
    runs = list(dict.fromkeys(run for claim in chosen for run in claim.runs(options.seeds)))
    store, plan = experiments.train_missing(runs, options)
    results = store.results(runs)
    with experiments.shown(store.path):
        verdicts = [claim.test(results, options.seeds) for claim in chosen]
    where = f"{options.dataset}, {options.preset} preset, seeds: {options.seeds}."
    if absent := sorted({*range(1, COUNT + 1)} - set(known)):
        where += f" Not for these data: claim {', '.join(map(str, absent))}."
    if options.preset != experiments.DEFAULT_PRESET:
        where += " These are not the paper's settings."
    print(f"\n{report.text(verdicts, options.seeds)}\n\n{where}\n")
    if len(chosen) < len(known):  # a file of some would take the place of the file of all
        return experiments.report_failures(plan)
    texts = {
        "md": f"# The paper's claims\n\n{where} {report.markdown(verdicts, options.seeds)}\n",
        "csv": report.comma_separated(verdicts),
    }
    for suffix, content in texts.items():
        path = options.out / f"{experiments.stem('claims', options)}.{suffix}"
        write_atomically(path, content.encode())
        print(path)
    experiments.write_report(store, options)
    return experiments.report_failures(plan)
