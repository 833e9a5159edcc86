"""The report: one HTML file that needs nothing else."""

from fullpipe.report.page import report

__all__ = ["report"]
