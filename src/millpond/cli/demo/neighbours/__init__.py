"""`millpond demo gridpocket`: is my consumption like that of my neighbours?

`comparison` is the question and its answer, `picture` draws it, `story` loads months of readings with Spark, asks with
and without skipping, and keeps the numbers.
"""
