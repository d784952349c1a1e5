"""Run the campaigns: `PYTHONPATH=tests python -m fuzz --help`."""

import argparse
import os
import sys
from pathlib import Path

from fuzz.campaigns import CAMPAIGNS, SHARES
from fuzz.running import State, run, run_case, table


def main():
    """Parse, run, print the table; 1 if a case has failed."""
    parser = argparse.ArgumentParser(prog="python -m fuzz", description=__doc__)
    parser.add_argument("--cases", type=int, default=10_000, help="of all campaigns but kills")
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--minutes", type=float, default=30, help="then it stops, to be resumed")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    parser.add_argument("--state", type=Path, default=Path("build/fuzz.json"), help="what was done")
    parser.add_argument("--campaign", nargs="+", choices=list(CAMPAIGNS), help="only these")
    parser.add_argument("--case", nargs="+", type=int, help="of one campaign, again, and no others")
    options = parser.parse_args()
    chosen = options.campaign or list(CAMPAIGNS)
    if options.case is not None:
        if len(chosen) != 1:
            parser.error("--case needs one --campaign")
        failures = 0
        for number in options.case:
            failure = run_case(chosen[0], CAMPAIGNS[chosen[0]], options.seed, number)
            print(f"{chosen[0]} {number}: {failure or 'holds'}")
            failures += failure is not None
        return 1 if failures else 0
    cases = {name: round(SHARES[name] * options.cases) for name in chosen if name in SHARES}
    if "kills" in chosen:
        cases["kills"] = options.kills
    state = State(options.state, options.seed)
    finished = run(cases, state, jobs=options.jobs, seconds=60 * options.minutes)
    print(table(cases, state))
    if not finished:
        print(f"\nStopped before the end; the same command resumes from {options.state}.")
    return 1 if any(state.failures.values()) or not finished else 0


if __name__ == "__main__":
    sys.exit(main())
