"""One module for each `trainscale` command, imported only when it is called."""
