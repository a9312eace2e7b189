"""From a trained model to answers: links of known and of new entities, and what can be done with them."""
