"""Graphs: what a SPARQL endpoint or an RDF file knows about what a question names."""
