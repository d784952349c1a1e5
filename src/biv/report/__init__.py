"""HTML reports, and results as text and figures."""
