"""What we build from: the packages and jars of the locks, as an SBOM, and compared with known vulnerabilities."""
