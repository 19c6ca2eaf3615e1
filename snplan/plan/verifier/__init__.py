"""Rules of `snplan.plan.verify`, a module for each kind of rule; nothing here is shared with the planner."""
