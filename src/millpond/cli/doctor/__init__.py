"""`millpond doctor`: is this machine, and this pond, in a state to work? It says how to mend, and changes nothing.

`findings` says what a check answers with, `machine` looks at the machine, `pond` at the pond's directory without
opening it (so that it works on a pond that another process has, or that does not open), `command` runs them all.
"""
