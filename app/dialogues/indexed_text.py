"""What of a message is embedded and indexed. Pure."""


def indexed_text(content: str, sender_name: str | None) -> str:
    """The message as it is embedded and its terms are taken: with its speaker, to find "what did Ming say".

    The name raised any@5 from 24.8 to 40.0 (dense) and from 53.9 to 56.8 (BM25) on LoCoMo: docs/retrieval.md.
    """
    return f"{sender_name}: {content}" if sender_name else content
