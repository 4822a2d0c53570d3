"""A SPARQL endpoint of rdflib over a file: ``rdf_server.py FILE PORT``."""

import sys

import uvicorn
from rdflib import Dataset
from rdflib_endpoint import SparqlEndpoint


def main(file: str, port: str) -> None:
    graph = Dataset(default_union=True)
    graph.parse(file)
    uvicorn.run(SparqlEndpoint(graph=graph, path="/sparql"), host="127.0.0.1", port=int(port), log_level="warning")


if __name__ == "__main__":
    main(*sys.argv[1:])
