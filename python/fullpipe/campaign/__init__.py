"""Campaigns: a grid of runs, read from a file, expanded, and run where it is missing."""

from fullpipe.campaign.expand import expand
from fullpipe.campaign.file import Campaign, Grid, read_campaign
from fullpipe.run import LabPath, RunSpec

__all__ = ["Campaign", "Grid", "LabPath", "RunSpec", "expand", "read_campaign"]
