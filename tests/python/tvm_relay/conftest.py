"""The scripts are written for TVM while it had Relay: tests run them, nothing imports them."""

collect_ignore = ["scripts"]
