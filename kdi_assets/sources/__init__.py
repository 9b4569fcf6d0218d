"""What a source holds, and a DataFrame of exact ranges of it."""
