"""The release. A constant: asking the installation takes longer than opening a database."""

VERSION = "0.1.0"
