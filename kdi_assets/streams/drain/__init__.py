"""The main way: snapshot, plan, read, rules, files, dead letters, accounting, commit, report."""
