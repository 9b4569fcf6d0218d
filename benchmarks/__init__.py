"""How fast it is, compared with what an experienced user of Spark would write; `make bench` runs it."""
