"""`biv claims`: the paper's twenty claims, put to the test."""

from __future__ import annotations

import argparse

from biv._utils.command_line import describe_command
from biv.paper.commands import _options
from biv.paper.presets import PRESETS

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


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options of this command."""
    describe_command(
        parser,
        call,
        description=__doc__,
        examples=EXAMPLES,
        page="paper/claims",
        interrupted="what was finished is stored",
    )
    parser.add_argument(
        "numbers", nargs="*", metavar="CLAIM", help="1 to 20 (default: all, written to OUT too)"
    )
    _options.add_options(parser)


def call(options: argparse.Namespace) -> int:
    """Train what is missing, then judge from the store."""
    from biv._utils.atomic_files import write_atomically
    from biv.paper.claim import find
    from biv.paper.claims import COUNT, claims
    from biv.paper.commands import _common
    from biv.paper.report import claims as report
    from biv.paper.report.files import named_errors

    _options.check(options)
    known = claims(options.dataset, PRESETS[options.preset])
    chosen = [find(number, known) for number in dict.fromkeys(options.numbers)]
    chosen = chosen or list(known.values())
    if options.list:
        things = [
            _common.Listed(f"claim {c.number}", "", c.runs(options.seeds), c.says) for c in chosen
        ]
        return _common.print_listing(things, options)
    runs = list(dict.fromkeys(run for claim in chosen for run in claim.runs(options.seeds)))
    store, plan = _common.train_missing(runs, options)
    results = store.results(runs)
    with named_errors(store.path):
        verdicts = [claim.test(results, options.seeds) for claim in chosen]
    where = f"{options.dataset}, {options.preset} preset, seeds: {options.seeds}."
    if absent := sorted({*range(1, COUNT + 1)} - set(known)):
        where += f" Not for these data: claim {', '.join(map(str, absent))}."
    if options.preset != _options.DEFAULT_PRESET:
        where += " These are not the paper's settings."
    print(f"\n{report.text(verdicts, options.seeds)}\n\n{where}\n")
    if len(chosen) < len(known):  # a file of some would take the place of the file of all
        return _common.report_failures(plan)
    texts = {
        "md": f"# The paper's claims\n\n{where} {report.markdown(verdicts, options.seeds)}\n",
        "csv": report.comma_separated(verdicts),
    }
    for suffix, content in texts.items():
        path = options.out / f"{_options.stem('claims', options)}.{suffix}"
        write_atomically(path, content.encode())
        print(path)
    _common.write_report(store, options)
    return _common.report_failures(plan)
