"""LLVM text: its emitter, registers of each dtype, lazy arrays and their zero ranges, the scope of a program."""
