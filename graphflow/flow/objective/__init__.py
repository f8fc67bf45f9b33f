"""The objective: the price of a plan, as a sum of terms over the candidates of its nodes."""
