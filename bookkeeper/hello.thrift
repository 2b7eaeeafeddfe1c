// How two processes that share a token show it to each other before the first call of a connection. The token itself
// never travels. Framed, binary; docs/security.md.

exception Refused { 1: string why }

service Hello {
  // 32 random bytes of the client; the answer: 32 random bytes of the server.
  binary hello(1: binary nonce)
  // HMAC-SHA256(token, "artimon client" + client's nonce + server's nonce); the answer: the same of "artimon server".
  // A server that is not convinced says so and closes the connection.
  binary prove(1: binary proof) throws (1: Refused refused)
}
