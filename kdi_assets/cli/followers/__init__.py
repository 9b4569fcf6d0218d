"""Commands of tables that are made of tables: `kdi refine`, `serve`, `psql`."""
