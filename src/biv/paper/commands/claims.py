"""`biv claims`: test the paper's twenty claims on the trained runs."""

from __future__ import annotations

import argparse

from biv._utils.command_line import describe_command
from biv.paper.commands import _options
from biv.paper.presets import PRESETS

EXAMPLES = """examples:
  biv claims                                            all claims, on all of Bike Sharing
  biv claims 4 19                                       two claims, printed but not written to OUT
  biv claims --list                                     list claims, runs and estimated times
  biv claims --stored --out results                     use the runs stored in results only
  biv claims --cluster dask://10.0.0.7:8786             train on a Dask cluster (or: --cluster ray)
  biv claims --dataset bike2011 --preset laptop         on the included data, in less time

Runs are stored in OUT/runs.sqlite, which `biv reproduce` also uses. Stored runs are not trained
again. Each verdict is a paired comparison over seeds; all claims follow the same rule.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options of this command."""
    describe_command(
        parser,
        call,
        description=__doc__,
        examples=EXAMPLES,
        page="paper/claims",
        interrupted="finished runs are stored",
    )
    parser.add_argument(
        "numbers",
        nargs="*",
        metavar="CLAIM",
        help="1 to 20 (default: all, which also writes the verdicts to OUT)",
    )
    _options.add_options(parser)


def call(options: argparse.Namespace) -> int:
    """Train the missing runs, then test the claims on the stored results."""
    from biv._utils.atomic_files import write_atomically
    from biv.paper.claim import find
    from biv.paper.claims import COUNT, claims
    from biv.paper.commands import _common
    from biv.paper.report import claims as report
    from biv.paper.report.claims import seeds_text
    from biv.paper.report.files import named_errors

    _options.check(options)
    available = claims(options.dataset, PRESETS[options.preset])
    selected = [find(number, available) for number in dict.fromkeys(options.numbers)]
    selected = selected or list(available.values())
    if options.list:
        rows = [
            _common.ListingRow(f"claim {c.number}", "", c.runs(options.seeds), c.statement)
            for c in selected
        ]
        return _common.print_listing(rows, options)
    runs = list(dict.fromkeys(run for claim in selected for run in claim.runs(options.seeds)))
    store, summary = _common.train_missing(runs, options)
    results = store.results(runs)
    with named_errors(store.path):
        verdicts = [claim.test(results, options.seeds) for claim in selected]
    settings = f"Data: {options.dataset}, {options.preset} preset, {seeds_text(options.seeds)}."
    if absent := sorted({*range(1, COUNT + 1)} - set(available)):
        numbers = f"claim{'s' if len(absent) > 1 else ''} {', '.join(map(str, absent))}"
        settings += f" These data cannot test {numbers}."
    if options.preset != _options.DEFAULT_PRESET:
        settings += " These are not the paper's settings."
    print(f"\n{report.text(verdicts, options.seeds)}\n\n{settings}\n")
    if len(selected) < len(available):  # a selection must not replace the file of all claims
        return _common.report_failures(summary)
    texts = {
        "md": f"# The paper's claims\n\n{settings} {report.markdown(verdicts, options.seeds)}\n",
        "csv": report.comma_separated(verdicts),
    }
    for suffix, content in texts.items():
        path = options.out / f"{_options.stem('claims', options)}.{suffix}"
        write_atomically(path, content.encode())
        print(path)
    _common.write_report(store, options)
    return _common.report_failures(summary)
