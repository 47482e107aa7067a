"""Modelled time: the duration of each step, the records of a timeline, and its pictures."""
