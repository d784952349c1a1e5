"""Run fuzzing campaigns: `PYTHONPATH=tests python -m fuzz --help`."""

import argparse
import os
import sys
from pathlib import Path

from fuzz.campaigns import CAMPAIGNS, SHARES
from fuzz.running import State, run, run_case, table


def main():
    """Run the campaigns and print a table; return 1 if a case has failed."""
    parser = argparse.ArgumentParser(prog="python -m fuzz", description=__doc__)
    parser.add_argument(
        "--cases", type=int, default=10_000, help="number of cases of all campaigns except kills"
    )
    parser.add_argument("--kills", type=int, default=100, help="number of cases of kills")
    parser.add_argument("--seed", type=int, default=0, help="seed of all cases")
    parser.add_argument(
        "--minutes", type=float, default=30, help="time limit; the same command resumes later"
    )
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="number of processes")
    parser.add_argument(
        "--state", type=Path, default=Path("build/fuzz.json"), help="file with the cases done"
    )
    parser.add_argument(
        "--campaign", nargs="+", choices=list(CAMPAIGNS), help="run these campaigns only"
    )
    parser.add_argument(
        "--case", nargs="+", type=int, help="repeat these cases of one campaign, and run no others"
    )
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
        print(f"\nThe time limit is reached; the same command resumes from {options.state}.")
    return 1 if any(state.failures.values()) or not finished else 0


if __name__ == "__main__":
    sys.exit(main())
