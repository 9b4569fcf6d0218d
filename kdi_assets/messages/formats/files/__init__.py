"""Messages that name files, whose rows become the table's rows."""
