"""Transform: carry a parent's weights over to the shapes of a child."""
