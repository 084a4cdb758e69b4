"""At which rate of a network a reducer and dense take the same time."""
