"""The report: one HTML file that needs nothing else."""

from fullpipe.report.page import figure, report

__all__ = ["figure", "report"]
