"""Repairs: single changes of a concurrent kernel's program, one of which may remove a finding."""
