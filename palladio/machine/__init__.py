"""Floor 7: the machine that runs concurrent kernels.

`run` has threads, operations in flight and schedules, `rules` the behaviour of each operation, `check` the checker, and
`timeline` the modelled time.
"""
