"""The machine: threads, operations in flight, barriers, memory of cores, clocks, schedules."""
