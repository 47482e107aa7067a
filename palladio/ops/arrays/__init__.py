"""Operations on arrays: element by element, reductions, scans, sorting, rearranging, products."""
