"""The conformance suite: what http-api.md says of the wire, one case a sentence, against any base URL."""
