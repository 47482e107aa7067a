"""Rules of array operations, control flow and debugging on the CPU: a module for each family, named like it.

Accesses are in `palladio.cpu.access`, products in `palladio.cpu.products`, the operations of threads in
`palladio.cpu.launches`; `palladio.cpu.rule_table` collects them all.
"""
