"""HTTP/2: frames, header blocks, streams and flow control."""
