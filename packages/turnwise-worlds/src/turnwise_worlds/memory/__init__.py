"""Reading what does not fit into the context, by writing down what matters."""
