"""How fast, against what a good user of Spark would write; `make bench` runs it."""
