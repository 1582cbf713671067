"""GridPocket: readings of electricity meters over France, made by formula and yet shaped like the real thing.

Twelve fields as in the published experiment: `date`, `index`, `sumHC`, `sumHP`, `type`, `vid`, `size`, `temp`, `city`,
`region`, `latitude`, `longitude`. `places` is the map, `country` says where meters are, `weather` how warm it is,
`homes` what they draw, `readings` makes the rows, `job` makes them in Spark. Everything follows from a seed, and any
row can be made by itself.
"""

from millpond.gridpocket.job import frame
from millpond.gridpocket.readings import BATCH_ROWS, ORIGIN, SCHEMA, Readings, readings

__all__ = ["BATCH_ROWS", "ORIGIN", "SCHEMA", "Readings", "frame", "readings"]
