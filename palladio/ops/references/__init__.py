"""Operations on references, and the NumPy semantics of their transforms."""
