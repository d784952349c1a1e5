"""The section on the claims: their verdicts and the comparisons behind them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from biv.paper.claim import Verdict
from biv.paper.report import claims as claim_texts
from biv.paper.report.paper_page._cells import format_finite
from biv.paper.verdicts import EQUAL_WITHIN, Finding, Note, PairedRatio
from biv.report.parts import Cell, KeyNumber, KeyNumbers, Section, Table, Text

AXIS = (0.25, 4.0)  # smallest and largest ratio on the axis of a drawn interval
TONES = {"holds": "good", "fails": "bad", "undecided": "open"}
SIGNS = {"holds": "✓ ", "fails": "✗ ", "undecided": "? "}


def claims_section(verdicts: Sequence[Verdict], seeds: int) -> Section:
    """Return the verdicts on the claims, and every comparison behind them."""
    counts = Counter(verdict.overall for verdict in verdicts)
    tiles = [
        KeyNumber(label, str(counts[kind]), f"of {len(verdicts)} claims")
        for kind, label in (
            ("holds", "hold"),
            ("fails", "fail"),
            ("undecided", f"undecided at {claim_texts.seeds_text(seeds)}"),
            ("not run", "not run"),
        )
        if counts[kind]
    ]
    summary = Table(
        "claims",
        "The verdict on each claim, and its comparison with the ratio furthest from 1. The next "
        "table has all comparisons.",
        ["number", "claim", "verdict", "strongest ratio", "low", "high", "comparison"],
        [
            [
                Cell(str(v.claim.number), float(v.claim.number)),
                v.claim.statement,
                _verdict(claim_texts.headline(v, seeds), v.overall),
                *_strongest(v),
            ]
            for v in verdicts
        ],
    )
    parts = Table(
        "claims-parts",
        "All comparisons behind the claims, with 95% intervals.",
        ["claim", "part", "claimed", "ratio", "low", "high", "seeds", "verdict"],
        [
            [
                Cell(str(v.claim.number), float(v.claim.number)),
                finding.label,
                finding.claimed if isinstance(finding, PairedRatio) else "",
                *_interval(finding),
                Cell(str(finding.seeds), float(finding.seeds)),
                _verdict(finding.verdict, finding.verdict),
            ]
            for v in verdicts
            for finding in v.findings
        ],
        folded=True,
    )
    return Section(
        "claims",
        "Tests of the paper's claims",
        [KeyNumbers(tiles), summary, parts, Text(claim_texts.RULE, "note")],
    )


def _verdict(text: str, kind: str) -> Cell:
    return Cell(f"{SIGNS.get(kind, '')}{text}", tone=TONES.get(kind, ""))


def _strongest(verdict: Verdict) -> tuple[Cell, Cell, Cell, str]:
    """Return the comparison furthest from 1 among those with the verdict of the claim."""
    ratios = [f for f in verdict.findings if isinstance(f, PairedRatio) and f.ratio > 0]
    agreeing = [f for f in ratios if f.verdict == verdict.overall]
    if not agreeing:
        return Cell(""), Cell(""), Cell(""), ""
    strongest = max(agreeing, key=lambda f: abs(math.log(f.ratio)))
    return (*_interval(strongest), strongest.label)


def _interval(finding: Finding) -> tuple[Cell, Cell, Cell]:
    """Return a ratio and the ends of its 95% interval, drawn on an axis that all rows share."""
    empty = Cell("")
    if isinstance(finding, Note):
        return Cell(finding.text), empty, empty
    if not isinstance(finding, PairedRatio):
        return Cell(f"{finding.times} of {finding.seeds} runs"), empty, empty
    if not math.isfinite(finding.ratio):
        return empty, empty, empty

    def position(ratio: float) -> float:
        low, high = map(math.log, AXIS)
        return 100 * (min(max(math.log(ratio), low), high) - low) / (high - low)

    bar = ""
    if math.isfinite(finding.low):
        bar = (
            f'<line class="bar" x1="{position(finding.low):.1f}" x2="{position(finding.high):.1f}" '
            'y1="6" y2="6"/>'
        )
    margin = ""
    if finding.claimed == "equal":
        left, right = position(1 - EQUAL_WITHIN), position(1 + EQUAL_WITHIN)
        margin = (
            f'<rect class="margin" x="{left:.1f}" y="0" width="{right - left:.1f}" height="12"/>'
        )
    drawing = (
        '<svg class="interval" viewBox="0 0 100 12" preserveAspectRatio="none" aria-hidden="true">'
        f'{margin}<line class="axis" x1="0" x2="100" y1="6" y2="6"/>'
        f'<line class="one" x1="{position(1):.1f}" x2="{position(1):.1f}" y1="0" y2="12"/>{bar}'
        f'<circle class="dot" cx="{position(finding.ratio):.1f}" cy="6" r="2.2"/></svg>'
    )
    low, high = (Cell(format_finite(end, ".3f"), end) for end in (finding.low, finding.high))
    return Cell(f"{finding.ratio:.3f}", finding.ratio, drawing=drawing), low, high
