"""Verified repairs: calls that are run again with their kernels changed, and the search among the changes."""
