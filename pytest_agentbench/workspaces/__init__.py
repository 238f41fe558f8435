"""The run's own folder, and the sandbox its commands run in. What an agent names is opened here, and only here."""
