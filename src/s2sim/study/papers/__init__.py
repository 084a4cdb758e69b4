"""Published claims rebuilt: set-up, claim, what comes out here, and a plain judgement."""
