"""A page on which a visitor is the attacker, and sees which policies can be bought."""
