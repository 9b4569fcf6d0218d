"""What a source holds, and a DataFrame of exact ranges of it: one folder for each source."""
