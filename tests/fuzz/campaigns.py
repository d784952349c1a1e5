"""List of the campaigns, with the fraction of all cases that each gets."""

from fuzz import faults, files, fits, full, kills, losses, tables

CAMPAIGNS = {
    "losses": losses.case,
    "fits": fits.case,
    "tables": tables.case,
    "files": files.case,
    "faults": faults.case,
    "full": full.case,
    "kills": kills.case,
}
# Campaigns whose cases take milliseconds get most; the number of kills is set separately.
SHARES = {
    "losses": 0.642, "fits": 0.08, "tables": 0.12, "files": 0.12, "faults": 0.036, "full": 0.002,
}  # fmt: skip
