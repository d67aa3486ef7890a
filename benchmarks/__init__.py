"""This project beside its peers: ratios measured in one run on one machine. `make bench`."""
