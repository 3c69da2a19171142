"""Compresses large JSON answers of the API with gzip, if the client accepts it.

Answers of the console's session are not compressed: they contain a secret, and their size would
help to guess it (BREACH). Event streams are not compressed, because each event must arrive at once.
"""

from flask import Flask, Response, request
from flask_compress import Compress
from werkzeug.datastructures import ETags

# Bytes from which compression is worth the time. Few leases are that large.
_MIN_SIZE = 4096
_PATHS = ("/v1", "/v2")
# Flask-Compress adds it to the ETag of a compressed answer.
_SUFFIX = ":gzip"


def install(app: Flask) -> None:
    """Compress answers of ``app`` after its views, and after the functions registered later."""
    app.config.update(
        COMPRESS_REGISTER=False,
        COMPRESS_ALGORITHM=["gzip"],
        COMPRESS_MIMETYPES=["application/json"],
        COMPRESS_STREAMS=False,
        COMPRESS_MIN_SIZE=_MIN_SIZE,
    )
    compress = Compress(app)

    def after_request(response: Response) -> Response:
        is_large = not response.is_streamed and (response.content_length or 0) >= _MIN_SIZE
        if not (is_large and request.path.startswith(_PATHS)):
            return response
        # Flask-Compress overlooks that a quality of 0 means "not acceptable".
        is_acceptable = request.accept_encodings.quality("gzip") > 0
        return compress.after_request(response) if is_acceptable else response

    app.after_request(after_request)


def contains(etags: ETags, tag: str) -> bool:
    """Return whether ``etags`` contain ``tag``, also as the ETag of a compressed answer."""
    return etags.contains(tag) or etags.contains(f"{tag}{_SUFFIX}")
