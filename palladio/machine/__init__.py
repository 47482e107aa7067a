"""Floor 7: the machine that runs concurrent kernels.

`run` has threads, operations in flight and schedules, `rules` what each operation does there, `check` the checker, and
`timeline` the modelled time.
"""
