"""Going back: what a drain made of messages is made anew, or decided otherwise."""
