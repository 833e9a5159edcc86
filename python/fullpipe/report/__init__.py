"""The report of a folder of records: one HTML file that needs no other file."""

from fullpipe.report.page import figure, report

__all__ = ["figure", "report"]
