"""What reducers gain over dense in many settings: models, mini-batches and clusters."""
