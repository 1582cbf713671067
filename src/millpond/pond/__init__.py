"""The composition root: a pond, its streams, their catalog, and the work that goes on behind them."""
