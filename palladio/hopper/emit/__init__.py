"""Lowering of a launch or grid to the text of a kernel."""
