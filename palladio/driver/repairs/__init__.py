"""Verified repairs: repeated calls with changed kernels, and the search among the changes."""
