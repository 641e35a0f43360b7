"""The book's interactive figures. Import each from its own module, so that a page depends on no other."""
