"""Every policy under every attack, and what came of it."""
