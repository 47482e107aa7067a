"""Floor 7: the machine that runs concurrent kernels: agents, flights, clocks, schedules."""
