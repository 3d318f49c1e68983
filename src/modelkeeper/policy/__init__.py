"""Policies: how good is a model, who becomes a parent, who may come into the zoo, who stays? All pure."""
