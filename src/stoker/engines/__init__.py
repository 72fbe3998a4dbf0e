"""Ways to place agents. An engine never schedules trials: agents pull them from the store."""
