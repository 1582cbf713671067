"""Consumer groups: who processes which records of a stream, how far a group has come, and transactions.

`protocol` says what is asked and answered; `Consumer` is what users hold; the `Coordinator` owns all groups of a pond.
"""
