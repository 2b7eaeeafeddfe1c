// Agents send batches to a collector; docs/transport.md. Framed, binary.

// Answer to one message. ok: Kafka holds it at this position. Not ok: `reason` begins with one word and a colon:
//   damaged: the bytes are not a batch, or their digest is wrong (the message itself is at fault)
//   full: the collector's memory is used up; retry later
//   buffer full: Kafka's quota is used up; retry much later, one message at a time until one is taken
//   kafka: Kafka did not take it in time; it may or may not hold it
struct Answer {
  1: bool ok
  2: string cluster
  3: string topic_id
  4: i32 partition
  5: i64 offset
  6: string reason
  7: i32 leader_epoch = -1  // of the partition when it was written; -1: not known
  8: i64 credit = -1  // of the first answer of a call: bytes that the agent may have in flight from now on; -1: any
}

// Content of /artimon/acks/<topic_id> and the version of the node.
struct AckDocument {
  1: string topic_id
  2: binary data
  3: i64 version
}

// `known`: false if the collector has no trusted states now; ask ZooKeeper. `changed`: those whose version differs from
// the one in the call. `topics`: all topic ids with a state.
struct AckDocuments {
  1: bool known
  2: list<AckDocument> changed
  3: list<string> topics
}

// Answer to `open`. `calls`: most calls that the connection may carry at a time.
struct Welcome {
  1: i32 calls
}

// What an agent knows. `acks`: versions of the ack states, by topic id. `lineage`, `change`: of the last change of the
// configuration that it has seen; `scopes`: the scopes of its configuration, and "commands/NAME" for commands to it.
struct Known {
  1: map<string, i64> acks
  2: string lineage
  3: i64 change
  4: list<string> scopes
  5: i64 collectors  // digest of the list of collectors
}

// A collector in the registry: its id, and the data of its node.
struct Registered {
  1: string id
  2: binary data
}

// What an agent does not know. `known`: false if the collector has no session with ZooKeeper: ask ZooKeeper. `scopes`:
// those of its scopes that may have changed.
struct Notice {
  1: AckDocuments acks
  2: bool known
  3: string lineage
  4: i64 change
  5: list<string> scopes
  6: i64 digest  // of the list of collectors; 0: not known
  7: list<Registered> collectors  // empty if the agent has the list of this digest
}

// A connection that begins with `open` carries several calls at a time; their answers come in any order. Any other
// connection carries one call at a time.
service Collector {
  // Unknown to a server that takes one call at a time.
  Welcome open(1: string agent)

  // Returns one answer for each message, in order. At most 4 MiB and 2,000 messages a call.
  list<Answer> send(1: list<binary> messages)

  // States of the acks, which the collector watches in ZooKeeper for its agents. `versions`: those that the agent has.
  AckDocuments acks(1: map<string, i64> versions)

  // Returns once there is something that the agent does not know, at the latest after a minute.
  Notice watch(1: Known known)

  // Served by agents with a flow, not by collectors. For each identity (AGENT/EPOCH/LANE/SEQUENCE, epoch as 16
  // hexadecimal digits): true if every sink at the end of the flow has the batch.
  list<bool> delivered(1: list<string> ids)
}
