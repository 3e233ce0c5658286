"""Audio features: reading audio, log-mels, their store on disk, augmentation, and batches."""
