"""The version of the package, which its metadata takes from here."""

VERSION = "0.1.0"
