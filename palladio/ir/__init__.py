"""Floor 2: programs (variables, equations, operations), the current interpreter, verification, text form, walking."""
