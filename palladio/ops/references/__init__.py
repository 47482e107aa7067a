"""Operations on references, and the NumPy meaning of the transforms through which they reach."""
