"""Checks of calls under many schedules: the runs, the report, and pictures of findings."""
