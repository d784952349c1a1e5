"""Verdicts on the paper's claims as text, Markdown and CSV."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Sequence

from biv.paper.claim import Verdict
from biv.paper.verdicts import EQUAL_WITHIN, Count, Finding, Note, PairedRatio
from biv.report.markdown import aligned

RULE = (
    "Each part compares two methods under the same seeds, and therefore with the same split and "
    "the same noise. The measure is each run's own lowest smoothed test loss, unless the part "
    "names another one; a run that did not stay finite counts as 1, the error of a constant "
    "prediction. The table gives the geometric mean of the ratios and the 95% interval of a "
    "paired t-test of their logarithms. A difference (below, above) holds if the interval lies "
    "entirely on the claimed side of 1, and fails if it lies entirely on the other side. An "
    f"equality holds if the whole interval lies within ±{EQUAL_WITHIN:.0%} of 1, and fails if it "
    "lies entirely outside. Otherwise the part is undecided. A claim holds if all its parts hold, "
    "and fails if one part fails. Parts that are only shown have no influence on the verdict."
)


def text(verdicts: Sequence[Verdict], seeds: int) -> str:
    """Return every claim with its parts, for a terminal."""
    blocks = []
    for verdict in verdicts:
        rows = [_row(finding) for finding in verdict.findings]
        widths = [max(len(row[k]) for row in rows) for k in range(len(PART_HEADER))]
        parts = [
            "      " + "  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip()
            for row in rows
        ]
        head = f"{verdict.claim.number:3}  {verdict.claim.statement}"
        blocks.append("\n".join([head, f"      {headline(verdict, seeds)}", *parts]))
    return "\n\n".join([*blocks, totals(verdicts)])


def markdown(verdicts: Sequence[Verdict], seeds: int) -> str:
    """Return a table of the claims, the rule, and a table of all parts."""
    summary = [("", "claim", "verdict")] + [
        (str(verdict.claim.number), verdict.claim.statement, headline(verdict, seeds))
        for verdict in verdicts
    ]
    parts = [("", *PART_HEADER)] + [
        (str(verdict.claim.number) if position == 0 else "", *_row(finding))
        for verdict in verdicts
        for position, finding in enumerate(verdict.findings)
    ]
    return "\n\n".join([totals(verdicts), aligned(summary), RULE, aligned(parts)])


def comma_separated(verdicts: Sequence[Verdict]) -> str:
    """Return one row per part at full precision, as CSV."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(
        ["claim", "says", "claim_verdict", "part", "claimed", "ratio", "low", "high", "told",
         "seeds", "part_verdict"]
    )  # fmt: skip
    for verdict in verdicts:
        claim = verdict.claim
        for finding in verdict.findings:
            writer.writerow(
                [claim.number, claim.statement, verdict.overall, finding.label,
                 *_numbers(finding), finding.seeds, finding.verdict]
            )  # fmt: skip
    return out.getvalue()


def _numbers(finding: Finding) -> tuple[object, ...]:
    if isinstance(finding, PairedRatio):
        return (finding.claimed, finding.ratio, finding.low, finding.high, "")
    if isinstance(finding, Count):
        return ("every run", "", "", "", finding.times)
    return ("shown", "", "", "", finding.text)


def seeds_text(seeds: int) -> str:
    """Return a number of seeds as text, such as "5 seeds"."""
    return "1 seed" if seeds == 1 else f"{seeds} seeds"


def headline(verdict: Verdict, seeds: int) -> str:
    """Return the verdict and the number of parts that hold and fail."""
    count = sum(finding.verdict != "shown" for finding in verdict.findings)
    name = {
        "holds": "holds",
        "fails": "FAILS",
        "not run": "not run",
        "undecided": f"undecided at {seeds_text(seeds)}",
    }[verdict.overall]
    if verdict.overall == "not run":
        return name
    notes = []
    if count > 1:
        held, failed = verdict.count("holds"), verdict.count("fails")
        numbers = f"{held} of {count} parts {_verb('hold', held)}"
        if failed:
            numbers += f", {failed} {_verb('fail', failed)}"
        if not_run := verdict.count("not run"):
            numbers += f", {not_run} not run"
        notes.append(f"all {count} parts" if held == count else numbers)
    if verdict.missing:
        notes.append(f"{verdict.missing} of {verdict.required} runs are missing")
    return f"{name} ({'; '.join(notes)})" if notes else name


def _verb(verb: str, count: int) -> str:
    """Return a verb in the singular or the plural."""
    return f"{verb}s" if count == 1 else verb


def totals(verdicts: Sequence[Verdict]) -> str:
    """Return the number of claims with each verdict, as one sentence."""
    overall = [verdict.overall for verdict in verdicts]
    held, failed = overall.count("holds"), overall.count("fails")
    counts = [f"{held} {_verb('hold', held)}", f"{failed} {_verb('fail', failed)}"]
    counts.append(f"{overall.count('undecided')} undecided")
    if "not run" in overall:
        counts.append(f"{overall.count('not run')} not run")
    return f"Of {len(overall)}: {', '.join(counts)}."


PART_HEADER = ("part", "claimed", "ratio", "95% interval", "seeds", "verdict")


def _row(finding: Finding) -> tuple[str, ...]:
    if isinstance(finding, Note):
        return (finding.label, "shown", finding.text, "", str(finding.seeds), finding.verdict)
    if isinstance(finding, Count):
        runs = f"{finding.times} of {finding.seeds}"
        return (finding.label, "every run", runs, "", str(finding.seeds), finding.verdict)
    interval = "" if math.isnan(finding.low) else f"{finding.low:.3f} to {finding.high:.3f}"
    ratio = "" if math.isnan(finding.ratio) else f"{finding.ratio:.3f}"
    return (finding.label, finding.claimed, ratio, interval, str(finding.seeds), finding.verdict)
