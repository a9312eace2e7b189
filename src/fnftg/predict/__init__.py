"""Link prediction with a trained model: answers, explanations, completion, updates and embeddings."""
