"""Fraud in made-up shops: worlds to develop policies on, and others on which they are judged once.

`development` holds the worlds and the lies that anyone may look at, tune on and quote. `held_out` holds others, whose
families of lies differ. A policy is judged on them once: nobody who sets its constants reads that module or runs it
before. `playing` plays any policy in both; `scoring` makes the tables.
"""
