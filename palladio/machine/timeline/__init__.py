"""Modelled time: what each step takes, the records of a timeline, and its pictures."""
