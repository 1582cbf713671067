"""`millpond demo`: the whole way of a record, at the size of a few towns, in a few minutes.

`town` makes the readings, `inflow` appends them from several threads while others read, `questions` asks Spark over
live and settled records while appending goes on, `picture` draws what was found, `story` tells it in order and keeps
the numbers, `command` is the command. Everything that is printed was counted or measured in this run.
"""
