"""Verdicts on the paper's claims, as text, Markdown and CSV."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Sequence

from biv.paper.claim import Verdict
from biv.paper.verdicts import EQUAL_WITHIN, Count, Finding, Note, PairedRatio
from biv.report.markdown import aligned

RULE = (
    "Ratios of what two methods reach under the same seeds (same split, same noise): each run's "
    "own lowest smoothed test loss (1, the error of a constant, if it did not stay finite), unless "
    "a part names something else. Given are their geometric mean and the 95% interval of a paired "
    "t-test of the logarithms. A difference holds when the interval excludes 1 on the claimed side "
    "and fails when it does on the other; an equality holds when the interval lies within "
    f"±{EQUAL_WITHIN:.0%} of 1 and fails when it lies outside. Otherwise it is undecided. A claim "
    "of several parts holds if all do, and fails if one does; what is shown decides nothing."
)


def text(verdicts: Sequence[Verdict], seeds: int) -> str:
    """For a terminal: every claim with its parts."""
    blocks = []
    for verdict in verdicts:
        rows = [_row(finding) for finding in verdict.findings]
        widths = [max(len(row[k]) for row in rows) for k in range(len(PART_HEADER))]
        parts = [
            "      " + "  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip()
            for row in rows
        ]
        head = f"{verdict.claim.number:3}  {verdict.claim.says}"
        blocks.append("\n".join([head, f"      {headline(verdict, seeds)}", *parts]))
    return "\n\n".join([*blocks, totals(verdicts)])


def markdown(verdicts: Sequence[Verdict], seeds: int) -> str:
    """A table of the claims, and one of their parts."""
    summary = [("", "claim", "verdict")] + [
        (str(verdict.claim.number), verdict.claim.says, headline(verdict, seeds))
        for verdict in verdicts
    ]
    parts = [("", *PART_HEADER)] + [
        (str(verdict.claim.number) if position == 0 else "", *_row(finding))
        for verdict in verdicts
        for position, finding in enumerate(verdict.findings)
    ]
    return "\n\n".join([totals(verdicts), aligned(summary), RULE, aligned(parts)])


def comma_separated(verdicts: Sequence[Verdict]) -> str:
    """Every part, at full precision, for machines."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(
        ["claim", "says", "claim_verdict", "part", "claimed", "ratio", "low", "high", "told",
         "seeds", "part_verdict"]
    )  # fmt: skip
    for verdict in verdicts:
        claim = verdict.claim
        for found in verdict.findings:
            writer.writerow(
                [claim.number, claim.says, verdict.overall, found.what, *_numbers(found),
                 found.seeds, found.verdict]
            )  # fmt: skip
    return out.getvalue()


def _numbers(found: Finding) -> tuple[object, ...]:
    if isinstance(found, PairedRatio):
        return (found.claimed, found.ratio, found.low, found.high, "")
    if isinstance(found, Count):
        return ("every run", "", "", "", found.times)
    return ("shown", "", "", "", found.told)


def headline(verdict: Verdict, seeds: int) -> str:
    """The verdict, and how many parts are behind it."""
    count = sum(finding.verdict != "shown" for finding in verdict.findings)
    words = {
        "holds": "holds",
        "fails": "FAILS",
        "not run": "not run",
        "undecided": f"undecided at {seeds} seed{'s' if seeds > 1 else ''}",
    }[verdict.overall]
    if verdict.overall == "not run":
        return words
    notes = []
    if count > 1:
        held, failed = verdict.count("holds"), verdict.count("fails")
        told = f"{held} of {count} parts hold" + (f", {failed} fail" if failed else "")
        if absent := verdict.count("not run"):
            told += f", {absent} not run"
        notes.append(f"all {count} parts" if held == count else told)
    if verdict.missing:
        notes.append(f"{verdict.missing} of {verdict.asked} runs are missing")
    return f"{words} ({'; '.join(notes)})" if notes else words


def totals(verdicts: Sequence[Verdict]) -> str:
    """How many of each."""
    each = [verdict.overall for verdict in verdicts]
    words = [f"{each.count('holds')} hold", f"{each.count('fails')} fail"]
    words.append(f"{each.count('undecided')} undecided")
    if "not run" in each:
        words.append(f"{each.count('not run')} not run")
    return f"Of {len(each)}: {', '.join(words)}."


PART_HEADER = ("part", "claimed", "ratio", "95% interval", "seeds", "verdict")


def _row(found: Finding) -> tuple[str, ...]:
    if isinstance(found, Note):
        return (found.what, "shown", found.told, "", str(found.seeds), found.verdict)
    if isinstance(found, Count):
        seen = f"{found.times} of {found.seeds}"
        return (found.what, "every run", seen, "", str(found.seeds), found.verdict)
    interval = "" if math.isnan(found.low) else f"{found.low:.3f} to {found.high:.3f}"
    ratio = "" if math.isnan(found.ratio) else f"{found.ratio:.3f}"
    return (found.what, found.claimed, ratio, interval, str(found.seeds), found.verdict)
