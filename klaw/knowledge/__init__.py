"""Knowledge bases: reading documents, searching them and graphs, and what an answer cites."""
