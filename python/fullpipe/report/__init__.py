"""The report of a folder of records, or of two before and after a change: one HTML file by itself."""

from fullpipe.report.comparison import comparison_figure, report_comparison
from fullpipe.report.page import Written, figure, report, write_report

__all__ = ["Written", "comparison_figure", "figure", "report", "report_comparison", "write_report"]
