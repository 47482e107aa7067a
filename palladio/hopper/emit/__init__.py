"""From a launch to the text of a kernel."""
