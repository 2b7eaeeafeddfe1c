// Mutual proof of a shared token before the first call of a connection. The token itself is never sent. Framed, binary;
// docs/security.md.

exception Refused { 1: string why }

service Hello {
  // Argument: 32 random bytes of the client; result: 32 random bytes of the server.
  binary hello(1: binary nonce)
  // Argument: HMAC-SHA256(token, "artimon client" + client's nonce + server's nonce); result: same, "artimon server".
  // After a wrong proof the server raises Refused and closes the connection.
  binary prove(1: binary proof) throws (1: Refused refused)
}
