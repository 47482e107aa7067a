"""Floor 1: dtypes and promotion, shapes, memory spaces, array and reference types, access paths, effects."""
