"""What a document declares: one topic feeding one table, its format and its rules. No I/O."""
