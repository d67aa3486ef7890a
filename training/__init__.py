"""The work of one rank: model, data, optimizer and loop. The only package that imports torch, Horovod and DALI."""
