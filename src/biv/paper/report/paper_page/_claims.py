"""The section of the claims: their verdicts, and the comparisons behind them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from biv.paper.claim import Verdict
from biv.paper.report import claims as claim_texts
from biv.paper.report.paper_page._cells import format_finite
from biv.paper.verdicts import EQUAL_WITHIN, Finding, PairedRatio
from biv.report.parts import Cell, Figure, Figures, Section, Table, Text

AXIS = (0.25, 4.0)  # the ratios that an interval is drawn between
TONES = {"holds": "good", "fails": "bad", "undecided": "open"}
SIGNS = {"holds": "✓ ", "fails": "✗ ", "undecided": "? "}


def claims_section(verdicts: Sequence[Verdict], seeds: int) -> Section:
    """Return the verdicts on the claims, and every comparison behind them."""
    counts = Counter(verdict.overall for verdict in verdicts)
    tiles = [
        Figure(words, str(counts[kind]), f"of {len(verdicts)} claims")
        for kind, words in (
            ("holds", "they hold"),
            ("fails", "they fail"),
            ("undecided", f"undecided at {seeds} seed{'s' if seeds > 1 else ''}"),
            ("not run", "not run"),
        )
        if counts[kind]
    ]
    summary = Table(
        "claims",
        "Every claim. What each rests on is in the next table.",
        ["claim", "says", "verdict", "ratio that decides", "low", "high", "of what"],
        [
            [
                Cell(str(v.claim.number), float(v.claim.number)),
                v.claim.says,
                _verdict(claim_texts.headline(v, seeds), v.overall),
                *_deciding(v),
            ]
            for v in verdicts
        ],
    )
    parts = Table(
        "claims-parts",
        "All comparisons behind the claims, with 95% intervals",
        ["claim", "part", "claimed", "ratio", "low", "high", "seeds", "verdict"],
        [
            [
                Cell(str(v.claim.number), float(v.claim.number)),
                found.what,
                found.claimed if isinstance(found, PairedRatio) else "",
                *_interval(found),
                Cell(str(found.seeds), float(found.seeds)),
                _verdict(found.verdict, found.verdict),
            ]
            for v in verdicts
            for found in v.findings
        ],
        folded=True,
    )
    return Section(
        "claims",
        "The paper's claims, put to the test",
        [Figures(tiles), summary, parts, Text(claim_texts.RULE, "note")],
    )


def _verdict(words: str, kind: str) -> Cell:
    return Cell(f"{SIGNS.get(kind, '')}{words}", tone=TONES.get(kind, ""))


def _deciding(verdict: Verdict) -> tuple[Cell, Cell, Cell, str]:
    """Of the comparisons with the claim's own verdict the one furthest from 1, and of what."""
    compared = [f for f in verdict.findings if isinstance(f, PairedRatio) and f.ratio > 0]
    own = [f for f in compared if f.verdict == verdict.overall]
    if not own:
        return Cell(""), Cell(""), Cell(""), ""
    found = max(own, key=lambda f: abs(math.log(f.ratio)))
    return (*_interval(found), found.what)


def _interval(found: Finding) -> tuple[Cell, Cell, Cell]:
    """A ratio and the ends of its 95% interval, drawn on an axis that all share."""
    nothing = Cell("")
    if not isinstance(found, PairedRatio):
        told = getattr(found, "told", None)
        words = told if told is not None else f"{found.times} of {found.seeds} runs"  # type: ignore[union-attr]
        return Cell(words), nothing, nothing
    if not math.isfinite(found.ratio):
        return nothing, nothing, nothing

    def place(ratio: float) -> float:
        low, high = map(math.log, AXIS)
        return 100 * (min(max(math.log(ratio), low), high) - low) / (high - low)

    bar = ""
    if math.isfinite(found.low):
        bar = (
            f'<line class="bar" x1="{place(found.low):.1f}" x2="{place(found.high):.1f}" '
            'y1="6" y2="6"/>'
        )
    margin = ""
    if found.claimed == "equal":
        left, right = place(1 - EQUAL_WITHIN), place(1 + EQUAL_WITHIN)
        margin = (
            f'<rect class="margin" x="{left:.1f}" y="0" width="{right - left:.1f}" height="12"/>'
        )
    drawing = (
        '<svg class="interval" viewBox="0 0 100 12" preserveAspectRatio="none" aria-hidden="true">'
        f'{margin}<line class="axis" x1="0" x2="100" y1="6" y2="6"/>'
        f'<line class="one" x1="{place(1):.1f}" x2="{place(1):.1f}" y1="0" y2="12"/>{bar}'
        f'<circle class="dot" cx="{place(found.ratio):.1f}" cy="6" r="2.2"/></svg>'
    )
    low, high = (Cell(format_finite(end, ".3f"), end) for end in (found.low, found.high))
    return Cell(f"{found.ratio:.3f}", found.ratio, drawing=drawing), low, high
